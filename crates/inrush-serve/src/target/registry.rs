//! Finds tables on the server and remembers them.

use super::{Leaf, Shape, Target, Way, Ways};
use crate::config::{CreateTable, Into, Via};
use crate::session::connect_control;
use crate::settle::settle;
use inrush_cluster::NodeMap;
use inrush_core::{Code, Error, Result, Table, quote_ident};
use inrush_encode::frames::FrameLayout;
use inrush_sink::catalog::{self, TableName, direct};
use inrush_sink::connect::Connected;
use inrush_sink::conninfo::ConnInfo;
use inrush_sink::failure::server_error;
use inrush_sink::ledger::Ledger;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// How long a table that was not found is not looked for again.
const ABSENT_FOR: Duration = Duration::from_secs(2);

/// Windows that are made ahead in a table that an input makes.
pub(crate) const AHEAD: u32 = 3;

/// What the registry must know of the process.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub conninfo: ConnInfo,
    pub ledger: String,
    pub via: Via,
    /// Whether rows may go past a coordinator.
    pub bypass: bool,
    /// Other ways to nodes.
    pub nodes: NodeMap,
}

/// A layout, or that there is none, of a leaf and a list of columns, here or on nodes.
type Layouts = HashMap<(u32, u64, bool), Option<Arc<FrameLayout>>>;

/// The tables that are known, and a connection to ask about others.
pub(crate) struct Registry {
    pub settings: Settings,
    control: tokio::sync::Mutex<Option<Control>>,
    targets: RwLock<HashMap<String, Arc<Target>>>,
    absent: Mutex<HashMap<String, (Instant, String)>>,
    layouts: Mutex<Layouts>,
    versions: AtomicU64,
    /// Whether what dead processes have left was looked for.
    settled: AtomicBool,
    /// When a node could not be reached: others wait while one is tried.
    unreached: Mutex<Option<Instant>>,
}

/// The connection that looks and alters.
pub(crate) struct Control {
    pub connected: Connected,
    pub ledger: Ledger,
    has_extension: bool,
    encoding: String,
    session: inrush_encode::Session,
}

impl Control {
    async fn open(settings: &Settings) -> Result<Control> {
        let mut connected = connect_control(&settings.conninfo).await?;
        let facts = catalog::facts(&connected.client).await?;
        let array_nulls: String = connected
            .client
            .query_one("SELECT pg_catalog.current_setting('array_nulls')", &[])
            .await
            .map_err(server_error)?
            .get(0);
        let session =
            inrush_encode::Session::from_settings(&facts.time_zone, &facts.interval_style, &array_nulls);
        let ledger = Ledger::open(&mut connected.client, &settings.ledger, true)
            .await?
            .ok_or_else(|| Error::new(Code::Ledger, "the ledger could not be made"))?;
        let has_extension = facts.has_extension && settings.via == Via::Auto;
        if has_extension {
            connected.client.batch_execute(direct::LOAD_LIBRARY).await.map_err(server_error)?;
        }
        Ok(Control { connected, ledger, has_extension, encoding: facts.server_encoding, session })
    }
}

impl Registry {
    pub fn new(settings: Settings) -> Registry {
        Registry {
            settings,
            control: tokio::sync::Mutex::new(None),
            targets: RwLock::default(),
            absent: Mutex::default(),
            layouts: Mutex::default(),
            versions: AtomicU64::new(1),
            settled: AtomicBool::new(false),
            unreached: Mutex::new(None),
        }
    }

    /// The connection, opened if there is none that works.
    pub async fn control(&self) -> Result<tokio::sync::MappedMutexGuard<'_, Control>> {
        let mut control = self.control.lock().await;
        if control.as_ref().is_none_or(|control| control.connected.client.is_closed()) {
            *control = None;
            *control = Some(Control::open(&self.settings).await?);
        }
        tokio::sync::MutexGuard::try_map(control, Option::as_mut)
            .map_err(|_| Error::new(Code::Internal, "the control connection is not there"))
    }

    /// The table as it was last seen.
    fn known(&self, key: &str) -> Option<Arc<Target>> {
        self.targets.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    /// All tables that are known.
    pub fn all(&self) -> Vec<Arc<Target>> {
        self.targets.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// The table of this name, made if it is missing and may be made.
    ///
    /// # Errors
    /// Code `table` if there is none; `connect` and the like if the server cannot be asked now.
    pub async fn find(&self, name: &str, into: &Into) -> Result<Arc<Target>> {
        let key = key(name, into);
        if let Some(target) = self.known(&key) {
            check_class(&target, into)?;
            return Ok(target);
        }
        {
            let mut absent = self.absent.lock().unwrap_or_else(PoisonError::into_inner);
            absent.retain(|_, (at, _)| at.elapsed() < ABSENT_FOR);
            if let Some((_, fact)) = absent.get(&key) {
                return Err(Error::new(Code::Table, fact.clone()));
            }
        }
        let found = self.look(name, into).await;
        if let Err(error) = &found
            && error.code() == Code::Table
        {
            let mut absent = self.absent.lock().unwrap_or_else(PoisonError::into_inner);
            // Names come from outside.
            if absent.len() < 10_000 {
                absent.insert(key, (Instant::now(), error.fact().to_owned()));
            }
        }
        found
    }

    /// Looks at the table again, whatever is known.
    pub async fn look(&self, name: &str, into: &Into) -> Result<Arc<Target>> {
        let mut control = self.control().await?;
        // Another part may have had it looked at meanwhile.
        let table_name = table_name(name, into)?;
        let Control { connected, ledger, encoding, session, .. } = &mut *control;
        let found = match catalog::find(&connected.client, &table_name).await? {
            Some(found) => found,
            None => match &into.create {
                Some(create) => {
                    make(&mut connected.client, ledger, &table_name, create, into.unlogged).await?;
                    catalog::describe(&connected.client, &table_name).await?
                }
                None => catalog::describe(&connected.client, &table_name).await?,
            },
        };
        let windowed = inrush_windows::read(&connected.client, ledger, found.table.oid).await?;
        let known = self.known(&key(name, into));
        let known = known.as_ref().map(|target| &target.way);
        let special = special(&found.table, windowed.as_ref());
        let way = self.ways(encoding, *session).of(&connected.client, &found.table, special, known).await?;
        say(&found.table, &way, known);
        if way != Way::Here && !self.settled.load(Relaxed) {
            // What is prepared would keep rows with the same keys waiting.
            match settle(connected, ledger, &self.settings).await {
                Ok(()) => self.settled.store(true, Relaxed),
                // Perhaps for others to do, who have the right to; rows come all the same.
                Err(error) => {
                    tracing::warn!(error = error.fact(), "what dead processes have left was not ended");
                }
            }
        }
        let version = self.versions.fetch_add(1, Relaxed);
        let target =
            Arc::new(Target::new(key(name, into), name, found.table, windowed, way, *session, version));
        check_class(&target, into)?;
        let mut targets = self.targets.write().unwrap_or_else(PoisonError::into_inner);
        targets.insert(target.key.clone(), Arc::clone(&target));
        Ok(target)
    }

    /// Looks at a table that is known. `None` if it is gone.
    pub async fn look_again(&self, target: &Target) -> Result<Option<Arc<Target>>> {
        let mut control = self.control().await?;
        let Control { connected, ledger, encoding, session, .. } = &mut *control;
        let name = TableName { schema: Some(target.table.schema.clone()), name: target.table.name.clone() };
        let Some(found) = catalog::find(&connected.client, &name).await? else {
            self.targets.write().unwrap_or_else(PoisonError::into_inner).remove(&target.key);
            return Ok(None);
        };
        let windowed = inrush_windows::read(&connected.client, ledger, found.table.oid).await?;
        let special = special(&found.table, windowed.as_ref());
        let ways = self.ways(encoding, *session);
        let way = ways.of(&connected.client, &found.table, special, Some(&target.way)).await?;
        say(&found.table, &way, Some(&target.way));
        let same = found.table == target.table
            && way == target.way
            && windowed.as_ref() == target.windows.as_ref().map(|windows| &windows.windowed);
        let mut targets = self.targets.write().unwrap_or_else(PoisonError::into_inner);
        if same && let Some(known) = targets.get(&target.key) {
            return Ok(Some(Arc::clone(known)));
        }
        let version = self.versions.fetch_add(1, Relaxed);
        let target = Arc::new(Target::new(
            target.key.clone(),
            &target.asked,
            found.table,
            windowed,
            way,
            *session,
            version,
        ));
        targets.insert(target.key.clone(), Arc::clone(&target));
        Ok(Some(target))
    }

    fn ways<'a>(&'a self, encoding: &'a str, session: inrush_encode::Session) -> Ways<'a> {
        let Settings { conninfo, nodes, bypass, .. } = &self.settings;
        Ways { conninfo, map: nodes, bypass: *bypass, encoding, session, unreached: &self.unreached }
    }

    /// Adds columns to a table, and gives it as it is then. ALTER TABLE waits for everybody who uses the table, and
    /// everybody waits for it: it is tried for a short time, again and again.
    pub async fn add_columns(
        &self,
        target: &Target,
        into: &Into,
        columns: &[(String, &'static str)],
    ) -> Result<Arc<Target>> {
        let mut tries = 0;
        loop {
            let control = self.control().await?;
            let added: Vec<String> = columns
                .iter()
                .map(|(name, ty)| format!("ADD COLUMN IF NOT EXISTS {} {ty}", quote_ident(name)))
                .collect();
            let sql = format!(
                "BEGIN; SET LOCAL lock_timeout = '100ms'; ALTER TABLE {} {}; COMMIT",
                target.table.qualified(),
                added.join(", ")
            );
            let altered = control.connected.client.batch_execute(&sql).await;
            if let Err(e) = altered {
                let waited = e.code().is_some_and(|code| code.code() == "55P03");
                let error = control.connected.failure(&e).into_error();
                let _ = control.connected.client.batch_execute("ROLLBACK").await;
                drop(control);
                tries += 1;
                if waited && tries < 100 {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
                return Err(error);
            }
            tracing::info!(table = target.table.qualified(), columns = columns.len(), "columns were added");
            drop(control);
            self.widen_overflow(target).await?;
            break;
        }
        self.look(&target.asked, into).await
    }

    /// Gives the table for late rows the columns of the parent.
    async fn widen_overflow(&self, target: &Target) -> Result<()> {
        let Some(windows) = &target.windows else { return Ok(()) };
        let mut control = self.control().await?;
        let client = &mut control.connected.client;
        inrush_windows::widen_overflow(client, &windows.windowed, Duration::from_secs(5)).await
    }

    /// Has the window of an instant made, if the table's policy has it. Gives the table as it is then.
    pub async fn ensure(&self, target: &Target, into: &Into, instant: i64) -> Result<Arc<Target>> {
        {
            let mut control = self.control().await?;
            let Control { connected, ledger, .. } = &mut *control;
            inrush_windows::ensure(&mut connected.client, ledger, target.table.oid, instant).await?;
        }
        self.look(&target.asked, into).await
    }

    /// How the server wants the rows of a leaf; none if the extension does not take them.
    pub async fn layout(
        &self,
        leaf: &Leaf,
        target: &Target,
        shape: &Shape,
    ) -> Result<Option<Arc<FrameLayout>>> {
        if !leaf.may_be_direct || self.settings.via == Via::Copy {
            return Ok(None);
        }
        let key = (leaf.relid, shape.id, target.way.nodes().is_some());
        if let Some(known) = self.layouts.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(known.clone());
        }
        let control = self.control().await?;
        let layout = if let Way::Nodes(nodes) = &target.way {
            let Settings { conninfo, nodes: map, .. } = &self.settings;
            nodes.layout(&control.connected.client, conninfo, map, shape).await?
        } else if control.has_extension {
            let client = &control.connected.client;
            let mut table = target.table.clone();
            table.oid = leaf.relid;
            let names = shape.column_names();
            let mut layout = FrameLayout::parse(&direct::plan(client, &table, &names).await?)?;
            match &layout.refusal {
                Some(refusal) => {
                    tracing::info!(
                        table = leaf.qualified,
                        reason = %refusal.detail,
                        "the extension does not take this table"
                    );
                    None
                }
                None => {
                    for enum_type in layout.enums() {
                        layout.set_labels(enum_type, direct::labels(client, enum_type).await?);
                    }
                    Some(Arc::new(layout))
                }
            }
        } else {
            None
        };
        drop(control);
        let mut layouts = self.layouts.lock().unwrap_or_else(PoisonError::into_inner);
        layouts.insert(key, layout.clone());
        Ok(layout)
    }

    /// Forgets how the server wants the rows of a leaf, and what the table looked like: a statement has said that it
    /// is not so any more.
    pub fn forget(&self, target: &Target, leaf: u32) {
        self.layouts.lock().unwrap_or_else(PoisonError::into_inner).retain(|(relid, ..), _| *relid != leaf);
        self.targets.write().unwrap_or_else(PoisonError::into_inner).remove(&target.key);
    }

    /// Forgets the layouts of leaves that are not there any more.
    pub fn keep_layouts(&self, live: &std::collections::HashSet<u32>) {
        self.layouts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|(relid, ..), _| live.contains(relid));
    }
}

/// Why the rows of a table do not go to nodes, wherever these are.
fn special(table: &Table, windowed: Option<&inrush_windows::Windowed>) -> Option<&'static str> {
    match windowed {
        Some(_) => Some("it has windows"),
        None if table.unlogged => Some("it is unlogged: a crash of a node would empty it and not the ledger"),
        None => None,
    }
}

/// Logs the way of a table's rows when it is another than it was.
fn say(table: &Table, way: &Way, known: Option<&Way>) {
    if known == Some(way) {
        return;
    }
    let name = table.qualified();
    match (way.describe(), known) {
        (Some(how), _) => tracing::info!(table = name, "its rows go {how}"),
        (None, Some(Way::Nodes(_) | Way::Coordinator(_))) => {
            tracing::info!(table = name, "its rows are on this server now");
        }
        (None, _) => {}
    }
}

/// What tables are known by: the same name may be in several schemas.
fn key(name: &str, into: &Into) -> String {
    format!("{}\0{name}", into.schema.as_deref().unwrap_or_default())
}

/// Offsets are kept where the rows are, logged or unlogged: an input has only tables of one kind.
fn check_class(target: &Target, into: &Into) -> Result<()> {
    if target.unlogged() == into.unlogged {
        return Ok(());
    }
    let (is, says) = if target.unlogged() { ("unlogged", "false") } else { ("logged", "true") };
    Err(Error::new(
        Code::Clash,
        format!("table {} is {is}, and into.unlogged is {says}", target.table.qualified()),
    )
    .hint("Say into.unlogged = true for unlogged tables: what is accepted is lost if the database crashes."))
}

/// The name of a table as an input gives it. Configured names are read as SQL reads them; names from outside stand as
/// they are, in the schema of the configuration.
fn table_name(name: &str, into: &Into) -> Result<TableName> {
    match &into.table {
        Some(fixed) if fixed == name && !fixed.contains('{') => {
            let read = TableName::parse(name)?;
            Ok(TableName { schema: read.schema.or_else(|| into.schema.clone()), name: read.name })
        }
        _ => Ok(TableName { schema: into.schema.clone(), name: name.to_owned() }),
    }
}

/// The table of a name for who only looks: nothing is made, nothing is remembered. Without a ledger it has no windows.
pub(crate) async fn peek(
    client: &tokio_postgres::Client,
    settings: &Settings,
    ledger: Option<&Ledger>,
    name: &str,
    into: &Into,
) -> Result<(TableName, Option<Target>)> {
    let table_name = table_name(name, into)?;
    let Some(found) = catalog::find(client, &table_name).await? else { return Ok((table_name, None)) };
    let windowed = match ledger {
        Some(ledger) => inrush_windows::read(client, ledger, found.table.oid).await?,
        None => None,
    };
    let session = inrush_encode::Session::from_settings("UTC", "postgres", "on");
    let encoding = catalog::facts(client).await?.server_encoding;
    let ways = Ways {
        conninfo: &settings.conninfo,
        map: &settings.nodes,
        bypass: settings.bypass,
        encoding: &encoding,
        session,
        unreached: &Mutex::new(None),
    };
    let special = special(&found.table, windowed.as_ref());
    let way = ways.of(client, &found.table, special, None).await?;
    let target = Target::new(key(name, into), name, found.table, windowed, way, session, 0);
    check_class(&target, into)?;
    Ok((table_name, Some(target)))
}

/// Makes a missing table with a time column and windows; other columns come with the rows.
async fn make(
    client: &mut tokio_postgres::Client,
    ledger: &Ledger,
    name: &TableName,
    create: &CreateTable,
    unlogged: bool,
) -> Result<()> {
    let column = format!("{} timestamptz NOT NULL", quote_ident(&create.time));
    let spec = inrush_windows::Create {
        name: name.clone(),
        body: inrush_windows::Body::Columns(column),
        time_column: create.time.clone(),
        unit: None,
        window: Some(span(create.window.0)),
        keep: create.keep.map(|keep| span(keep.0)),
        max_size: None,
        min_free: None,
        ahead: AHEAD,
        lanes: 1,
        key_column: None,
        tablespaces: Vec::new(),
        unlogged,
        index: inrush_windows::IndexKind::Brin,
        pages_per_range: 128,
        storage: Vec::new(),
        late: inrush_windows::Late::Reject,
        idle: span(Duration::from_secs(10)),
    };
    match inrush_windows::create(client, ledger, &spec).await {
        // Another process may have been faster.
        Err(error) if error.sqlstate_text() == Some("42P07") => Ok(()),
        Err(error) => Err(error),
        Ok(_) => {
            tracing::info!(table = %name, "made, with windows");
            Ok(())
        }
    }
}

fn span(time: Duration) -> inrush_windows::Span {
    inrush_windows::Span::from_us(i64::try_from(time.as_micros()).unwrap_or(i64::MAX))
}
