//! Cold runs: nothing of the table in shared buffers, nothing in the operating system's cache.
//!
//! That makes the table cold for everybody, so it takes consent. It needs the server's files: the client must
//! be on the server's machine, as the server's account or root. What was done is looked up before each run,
//! not assumed.

pub(super) mod buffers;

use super::session::{Session, get};
use super::target::Target;
use super::{Cold, ColdWish, Hooks, LeftOut};
use crate::advise::ServerFacts;
use crate::files;
use buffers::{Extension, Relations, Scratch, Way};
use inrush_core::{Code, Error, Result};
use inrush_sink::conninfo::ConnInfo;
use std::path::{Path, PathBuf};
use tokio_postgres::types::Type;

/// How often scratch tables are tried to be removed, and what lies between.
const REMOVALS: u32 = 5;
const PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

/// Share of the files' pages that may be in the operating system's cache before a run that is called cold.
const MOST_RESIDENT: f64 = 0.01;

/// How often is tried to get there.
const TRIES: u32 = 4;

/// What makes the table cold.
pub(super) struct Freezer {
    session: Session,
    way: Way,
    /// Whether this session holds the lock of the scratch schema, without which that is another run's.
    locked: bool,
    look: Option<Extension>,
    relations: Relations,
    files: Vec<PathBuf>,
    target_pages: u64,
    /// What the report says.
    pub(super) said: Cold,
}

/// Why there are no cold runs.
pub(super) struct WarmOnly {
    pub(super) why: String,
    pub(super) remedy: Option<String>,
}

fn warm_only<T>(why: impl Into<String>, remedy: Option<&str>) -> Result<Result<T, WarmOnly>> {
    Ok(Err(WarmOnly { why: why.into(), remedy: remedy.map(str::to_owned) }))
}

impl Freezer {
    /// Finds out whether the table can be made cold, and asks whether it may.
    ///
    /// # Errors
    /// `interrupted`. That it is not possible is no error, whatever the server said: there are warm runs.
    pub(super) async fn prepare(
        conninfo: &ConnInfo,
        facts: &ServerFacts,
        target: &Target,
        wish: ColdWish,
        hooks: &Hooks<'_>,
        left_out: &mut Vec<LeftOut>,
    ) -> Result<Result<Freezer, WarmOnly>> {
        match Freezer::attempt(conninfo, facts, target, wish, hooks, left_out).await {
            Err(error) if error.code() != Code::Interrupted => {
                warm_only(format!("it could not be prepared: {}", error.fact()), error.hint_text())
            }
            other => other,
        }
    }

    async fn attempt(
        conninfo: &ConnInfo,
        facts: &ServerFacts,
        target: &Target,
        wish: ColdWish,
        hooks: &Hooks<'_>,
        left_out: &mut Vec<LeftOut>,
    ) -> Result<Result<Freezer, WarmOnly>> {
        if wish == ColdWish::Never {
            return warm_only("cold runs were not wanted", None);
        }
        if let Some(service) = &facts.managed {
            let why = format!("{service} gives no access to the server's files");
            return warm_only(why, Some("Restore or clone the server, and read the copy the first time."));
        }
        let Some(data) = facts.setting("data_directory").map(|setting| PathBuf::from(&setting.value)) else {
            let why = "this role may not see where the data directory is";
            return warm_only(why, Some("GRANT pg_read_all_settings TO the role."));
        };
        if facts.machine.is_none() {
            let why = format!("{} is not on this machine, or not readable by this account", data.display());
            return warm_only(
                why,
                Some("Run this on the server's machine, as the server's account or root."),
            );
        }
        let session = Session::open(conninfo, &hooks.stop).await?;
        let (relations, paths) = relations(&session, target).await?;
        let mut all = Vec::new();
        for path in &paths {
            match files::of(&data.join(path)) {
                Ok(files) => all.extend(files),
                Err(e) => {
                    let why = format!("{}: {e}", data.join(path).display());
                    return warm_only(why, Some("Run this as the server's account or root."));
                }
            }
        }
        let look = buffers::extension(&session, facts.superuser).await?;
        let size = facts.bytes("shared_buffers").map(|bytes| (bytes, target.page_bytes));
        let way = Way::find(&session, facts.version_num, facts.superuser, look.as_ref(), size).await?;
        if way == Way::None {
            let most = buffers::MOST_PUSHED >> 20;
            let why = format!(
                "what shared buffers hold of the table stays there: without a superuser and PostgreSQL 17 it \
                 could only be pushed out, which needs CREATE on the database, no recovery and \
                 shared_buffers of at most {most} MB"
            );
            let pushable = size.is_some_and(|(bytes, _)| bytes <= buffers::MOST_PUSHED);
            let remedy = match (facts.version_num >= 170_000, pushable && !facts.standby) {
                (true, true) => {
                    "Run this as a superuser, or GRANT CREATE ON DATABASE the database TO the role."
                }
                (true, false) => "Run this as a superuser.",
                (false, true) => "GRANT CREATE ON DATABASE the database TO the role.",
                (false, false) => "Run this on a copy that is no standby and has smaller shared_buffers.",
            };
            return warm_only(why, Some(remedy));
        }
        // The scratch tables are made in pg_default, which is in the data directory.
        let free = facts.machine.as_ref().and_then(|machine| machine.directories.first()?.space);
        if free.is_some_and(|space| space.free / 4 < way.scratch_bytes(target.page_bytes)) {
            let mb = way.scratch_bytes(target.page_bytes) / 1_000_000;
            let why = format!("the scratch tables that push pages out take {mb} MB, and little more is free");
            return warm_only(why, None);
        }
        if wish == ColdWish::Ask && !(hooks.agree)(&question(&way, &all, target.page_bytes)) {
            return warm_only("nobody has agreed to make the table cold (--cold or --yes does)", None);
        }
        let locked = matches!(way, Way::Push { .. }) && buffers::lock(&session).await?;
        if matches!(way, Way::Push { .. }) && !locked {
            return warm_only(
                "another `inrush explain` makes tables of this database cold",
                Some("Wait until it is done."),
            );
        }
        let mut said = Cold { measured: true, ..Cold::default() };
        checkpoint(&session, &mut said, left_out).await?;
        let mut freezer =
            Freezer { session, way, locked, look, relations, files: all, target_pages: target.pages(), said };
        // Made before anything is measured: it fills the caches.
        (hooks.note)("preparing cold runs");
        if let Err(error) = freezer.make(&data).await {
            freezer.finish().await;
            return Err(error);
        }
        freezer.say_how();
        Ok(Ok(freezer))
    }

    /// Makes what is needed to empty shared buffers, and has it written: nothing of that is to happen during
    /// a run.
    async fn make(&self, data: &Path) -> Result<()> {
        self.way.prepare(&self.session).await?;
        if matches!(self.way, Way::Push { .. }) {
            self.way.evict(&self.session, &self.relations, None).await?;
            for path in buffers::scratch_files(&self.session).await? {
                // What cannot be written now is written later, and makes runs uneven at worst.
                let _ = files::flush(&data.join(path));
            }
        }
        Ok(())
    }

    /// One of the files.
    pub(super) fn a_file(&self) -> Option<&Path> {
        self.files.first().map(PathBuf::as_path)
    }

    fn say_how(&mut self) {
        let evicted = match &self.way {
            Way::Relations(_) => "shared buffers: pg_buffercache_evict_relation()".to_owned(),
            Way::Pages(_) => "shared buffers: pg_buffercache_evict() page by page".to_owned(),
            Way::Push { .. } => {
                "shared buffers: pushed out by reading a scratch table until none of the pages can have \
                 stayed"
                    .to_owned()
            }
            Way::None => "shared buffers: left as they are".to_owned(),
        };
        self.said.how.push(evicted);
        self.said
            .how
            .push("file cache: posix_fadvise(DONTNEED) on the files of table, indexes and TOAST".to_owned());
    }

    /// Makes the table cold, and looks whether it is.
    ///
    /// # Errors
    /// `interrupted`. Inside: that it did not become cold, and why.
    pub(super) async fn freeze(&mut self) -> Result<Result<(), String>> {
        match self.cool().await {
            Err(error) if error.code() != Code::Interrupted => Ok(Err(error.fact().to_owned())),
            other => other,
        }
    }

    async fn cool(&mut self) -> Result<Result<(), String>> {
        let mut stays = String::new();
        for _ in 0..TRIES {
            self.way.evict(&self.session, &self.relations, self.look.as_ref()).await?;
            if let Err(e) = self.files.iter().try_for_each(|file| files::forget(file)) {
                return Ok(Err(format!("the files cannot be taken out of the file cache: {e}")));
            }
            let left = match &self.look {
                Some(look) => Some(look.left(&self.session, &self.relations).await?),
                None => None,
            };
            let share = match self.resident() {
                Ok(share) => share,
                Err(e) => return Ok(Err(format!("what the file cache holds cannot be looked up: {e}"))),
            };
            #[allow(clippy::cast_precision_loss)] // pages
            let few = left.is_none_or(|left| left as f64 <= MOST_RESIDENT * self.target_pages as f64);
            if share <= MOST_RESIDENT && few {
                self.said.resident = Some(self.said.resident.unwrap_or(0.0).max(share));
                self.said.buffers_left = self.said.buffers_left.max(left);
                return Ok(Ok(()));
            }
            stays = if share > MOST_RESIDENT {
                format!("{:.0} % of the files stay in the file cache", share * 100.0)
            } else {
                format!("{} pages stay in shared buffers", left.unwrap_or_default())
            };
        }
        Ok(Err(format!("{stays}: others use the table")))
    }

    /// Share of the files' pages that the operating system has in memory.
    fn resident(&self) -> std::io::Result<f64> {
        let (mut resident, mut all) = (0, 0);
        for file in &self.files {
            let (some, of) = files::resident(file)?;
            resident += some;
            all += of;
        }
        #[allow(clippy::cast_precision_loss)] // pages
        Ok(if all == 0 { 0.0 } else { resident as f64 / all as f64 })
    }

    /// Removes what was made. It must not fail: what is left is removed by the next run.
    pub(super) async fn finish(&self) {
        if self.locked {
            self.session.calm();
            // A request to cancel that was sent before may come in late and hit one of these.
            for _ in 0..REMOVALS {
                let _ = self.session.client().batch_execute("ROLLBACK").await;
                match buffers::clear(&self.session, true).await {
                    Ok(Scratch::Absent | Scratch::Dropped | Scratch::Foreign) => return,
                    Ok(Scratch::InUse) | Err(_) => tokio::time::sleep(PAUSE).await,
                }
            }
        }
    }
}

/// What making the table cold means, as a question.
fn question(way: &Way, all: &[PathBuf], page_bytes: u64) -> String {
    let size = files::bytes(all) / 1_000_000;
    let others = match way {
        Way::Push { .. } => format!(
            ", and with it everything that is in shared buffers, which cannot be emptied otherwise: scratch \
             tables of {} MB are made meanwhile in tablespace pg_default, and about {} MB of them read \
             before each run",
            way.scratch_bytes(page_bytes) / 1_000_000,
            way.pushed_bytes(page_bytes) / 1_000_000
        ),
        _ => String::new(),
    };
    format!(
        "To measure cold, there is a CHECKPOINT, and the table with its indexes ({size} MB) is taken out of \
         the caches before each run{others}: other users read it from the disk again, too. Do it?"
    )
}

/// Writes dirty pages, so that no run has to.
async fn checkpoint(session: &Session, said: &mut Cold, left_out: &mut Vec<LeftOut>) -> Result<()> {
    let row = session.row("SELECT pg_catalog.pg_has_role('pg_checkpoint', 'USAGE')", &[]).await?;
    if get::<bool>(&row, 0)? {
        session.run("CHECKPOINT").await?;
        said.how.push("CHECKPOINT, once".to_owned());
        return Ok(());
    }
    left_out.push(LeftOut {
        what: "no CHECKPOINT: pages that are dirty now are written during the runs".to_owned(),
        remedy: Some(
            "CHECKPOINT; by a superuser or a member of pg_checkpoint, before the next run.".to_owned(),
        ),
    });
    Ok(())
}

/// The relations whose pages count, and their files under the data directory: tables, indexes and TOAST.
async fn relations(session: &Session, target: &Target) -> Result<(Relations, Vec<String>), Error> {
    let oids: Vec<u32> = target.relations.iter().map(|one| one.oid).collect();
    let rows = session
        .rows(
            "WITH t AS (SELECT c.oid AS o FROM pg_catalog.pg_class c \
                         WHERE c.oid OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.oid[]) \
                         UNION SELECT c.reltoastrelid FROM pg_catalog.pg_class c \
                         WHERE c.oid OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.oid[])), \
                  r AS (SELECT t.o FROM t UNION SELECT i.indexrelid FROM pg_catalog.pg_index i \
                          JOIN t ON t.o OPERATOR(pg_catalog.=) i.indrelid) \
             SELECT r.o, pg_catalog.pg_relation_filenode(r.o::pg_catalog.regclass), \
                    pg_catalog.pg_relation_filepath(r.o::pg_catalog.regclass) \
               FROM r WHERE pg_catalog.pg_relation_filepath(r.o::pg_catalog.regclass) IS NOT NULL ORDER BY 1",
            &[(&oids, Type::OID_ARRAY)],
        )
        .await?;
    let mut relations = Relations::default();
    let mut paths = Vec::new();
    for row in &rows {
        relations.oids.push(get(row, 0)?);
        relations.filenodes.push(get(row, 1)?);
        paths.push(get(row, 2)?);
    }
    Ok((relations, paths))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_says_what_is_made_and_read() {
        // 128 MB of shared buffers.
        let asked = question(&Way::Push { buffers: 16_384 }, &[], 8192);
        assert!(asked.contains("scratch tables of 216 MB are made"), "{asked}");
        assert!(asked.contains("about 939 MB of them read before each run"), "{asked}");
        let asked = question(&Way::Relations(Extension::Borrowed), &[], 8192);
        assert!(!asked.contains("scratch"), "{asked}");
    }
}
