//! Which sessions are at work, and on which table: rules over what the server shows of them.

use super::statement::{self, Kind, WrittenName};

/// A session that has ended its transaction is at work for so many seconds more: between two statements, the client
/// has it wait.
const STAYS: f64 = 1.0;
/// The same within a transaction: a client may need that long for its next batch, and forgotten transactions are
/// left out.
const STAYS_IN_TRANSACTION: f64 = 30.0;
/// Statements shorter than this in the transaction of a COPY belong to it: a loader keeps its record with them.
const SHORT: f64 = 1.0;

/// Who a session is: numbers of processes are used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId {
    /// Process id of the backend.
    pub pid: i32,
    /// When it was started, in microseconds since 1970.
    pub started: i64,
}

/// What pg_stat_activity and the progress views have of a session.
#[derive(Debug, Clone)]
pub struct Session {
    /// Who it is.
    pub id: SessionId,
    /// The role that logged in.
    pub user: String,
    /// Its database.
    pub database: String,
    /// Its application_name.
    pub application: String,
    /// The client's address; none for a Unix socket.
    pub client: Option<String>,
    /// `active`, `idle`, `idle in transaction` ...
    pub state: String,
    /// Its present statement, or the last one.
    pub query: String,
    /// When the transaction began, in microseconds since 1970.
    pub transaction: Option<i64>,
    /// Seconds since the statement began.
    pub statement_seconds: f64,
    /// Seconds since the state changed.
    pub state_seconds: f64,
    /// The relation that a COPY writes to, as the server says while it runs.
    pub copies_into: Option<u32>,
    /// The table whose index is being built, and the entries put into it so far.
    pub indexes: Option<(u32, u64)>,
}

/// What a session that is at work does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Work {
    /// The kind of statement.
    pub kind: Kind,
    /// What the statement calls its table.
    pub written: Option<WrittenName>,
    /// The table, where the server says it.
    pub relation: Option<u32>,
    /// Whether a statement runs, or the client has the session wait.
    pub between: bool,
    /// The transaction it was seen in.
    pub transaction: Option<i64>,
}

impl Session {
    /// What it does, if that is loading; `before` is what it did when it was last seen at work.
    pub fn work(&self, before: Option<&Work>) -> Option<Work> {
        let active = matches!(&*self.state, "active" | "fastpath function call");
        let make = |kind, written, relation| Work {
            kind,
            written,
            relation,
            between: !active,
            transaction: self.transaction,
        };
        let own = statement::of(&self.query);
        if let (true, Some(relation)) = (active, self.copies_into) {
            let written = own.filter(|own| own.kind == Kind::Copy).and_then(|own| own.target);
            return Some(make(Kind::Copy, written, Some(relation)));
        }
        if let (true, Some((relation, _))) = (active, self.indexes) {
            return Some(make(Kind::CreateIndex, None, Some(relation)));
        }
        let as_before = |before: &Work| make(before.kind, before.written.clone(), before.relation);
        let same_transaction =
            before.filter(|b| b.transaction.is_some() && b.transaction == self.transaction);
        let rests = match &*self.state {
            "idle" => self.state_seconds < STAYS,
            "idle in transaction" => self.state_seconds < STAYS_IN_TRANSACTION,
            "active" | "fastpath function call" => true,
            _ => false,
        };
        if !rests {
            return None;
        }
        if let Some(before) = same_transaction {
            let short = !active || self.statement_seconds < SHORT;
            let of_a_copy = before.kind == Kind::Copy && own.as_ref().is_none_or(|o| o.kind != Kind::Copy);
            if (short && (of_a_copy || own.is_none())) || statement::ends_transaction(&self.query) {
                return Some(as_before(before));
            }
        }
        match own {
            Some(own) => Some(make(own.kind, own.target, None)),
            // After COMMIT.
            None if !active => before.map(as_before),
            None => None,
        }
    }
}

/// A relation, and the partitioned table it belongs to; a table that is no partition is its own root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relation {
    /// Its OID.
    pub oid: u32,
    /// Schema and name, quoted where they need it.
    pub name: String,
    /// OID of the root.
    pub root: u32,
    /// Schema and name of the root.
    pub root_name: String,
}

/// What tells tables apart. Partitions of one table are one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TableKey {
    /// A relation of the database that is connected to, by the OID of its root.
    Relation(u32),
    /// What a statement calls a table: in another database, or not there yet. With the database.
    Written(String, String),
}

/// The table a session works on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// What tells it from others.
    pub key: TableKey,
    /// The name to show.
    pub name: String,
    /// The name of its root.
    pub root_name: String,
    /// What the session has written to, where the server says it: for the size.
    pub relations: Vec<u32>,
}

impl Target {
    /// A table that the server does not name.
    pub fn written(database: &str, here: bool, written: Option<&WrittenName>) -> Target {
        let name = written.map_or("?".to_owned(), WrittenName::shown);
        let shown = if here { name.clone() } else { format!("{database}: {name}") };
        Target {
            key: TableKey::Written(database.to_owned(), name),
            name: shown.clone(),
            root_name: shown,
            relations: Vec::new(),
        }
    }

    /// The table among those that a session has locked for writing: the one its statement names, else the first.
    pub fn locked(locked: &[Relation], written: Option<&WrittenName>) -> Option<Target> {
        let named = locked.iter().find(|relation| {
            written.is_some_and(|w| is_called(&relation.name, w) || is_called(&relation.root_name, w))
        });
        let root = named.or_else(|| locked.iter().min_by_key(|relation| relation.root))?;
        let own: Vec<&Relation> = locked.iter().filter(|relation| relation.root == root.root).collect();
        let name = match own[..] {
            [one] => &one.name,
            _ => &root.root_name,
        };
        Some(Target {
            key: TableKey::Relation(root.root),
            name: name.clone(),
            root_name: root.root_name.clone(),
            relations: own.iter().map(|relation| relation.oid).collect(),
        })
    }
}

/// Whether `schema.name`, quoted where needed, is what somebody wrote.
fn is_called(quoted: &str, written: &WrittenName) -> bool {
    statement::name_of(quoted).is_some_and(|full| {
        full.relation == written.relation
            && written.schema.as_ref().is_none_or(|schema| full.schema.as_ref() == Some(schema))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(state: &str, query: &str, seconds: f64) -> Session {
        Session {
            id: SessionId { pid: 1, started: 0 },
            user: "u".into(),
            database: "d".into(),
            application: String::new(),
            client: None,
            state: state.into(),
            query: query.into(),
            transaction: Some(7),
            statement_seconds: seconds,
            state_seconds: seconds,
            copies_into: None,
            indexes: None,
        }
    }

    fn kind(session: &Session, before: Option<&Work>) -> Option<(Kind, bool)> {
        session.work(before).map(|work| (work.kind, work.between))
    }

    #[test]
    fn work_goes_on_between_statements_of_a_transaction() {
        let mut copying = session("active", "select f()", 3.0);
        assert_eq!(kind(&copying, None), None);
        copying.copies_into = Some(42);
        let copy = copying.work(None).unwrap();
        assert_eq!((copy.kind, copy.relation, copy.between), (Kind::Copy, Some(42), false));
        // The record a loader keeps, a question in between, the commit, however long.
        for (query, seconds) in [("INSERT INTO units VALUES (1)", 0.5), ("SELECT 1", 0.1), ("COMMIT", 9.0)] {
            assert_eq!(
                session("active", query, seconds).work(Some(&copy)).unwrap().relation,
                Some(42),
                "{query}"
            );
        }
        // Something else follows.
        assert_eq!(kind(&session("active", "SELECT 1", 2.0), Some(&copy)), None);
        let insert = session("active", "INSERT INTO u SELECT * FROM t", 2.0).work(Some(&copy)).unwrap();
        assert_eq!((insert.kind, insert.relation), (Kind::Insert, None));
        let other = Session { transaction: Some(8), ..session("active", "SELECT 1", 0.1) };
        assert_eq!(kind(&other, Some(&copy)), None);
        // The client has it wait.
        let idle = |seconds| session("idle in transaction", "COPY t FROM STDIN", seconds);
        assert_eq!(kind(&idle(5.0), None), Some((Kind::Copy, true)));
        assert_eq!(kind(&idle(31.0), Some(&copy)), None);
        assert_eq!(kind(&session("idle in transaction (aborted)", "COPY t FROM STDIN", 0.1), None), None);
    }

    #[test]
    fn a_session_may_rest_for_a_moment() {
        let insert = session("active", "INSERT INTO t VALUES (1)", 0.0).work(None).unwrap();
        let idle = |query: &str, seconds| Session { transaction: None, ..session("idle", query, seconds) };
        assert_eq!(kind(&idle("INSERT INTO t VALUES (1)", 0.2), None), Some((Kind::Insert, true)));
        assert_eq!(kind(&idle("COMMIT", 0.2), Some(&insert)), Some((Kind::Insert, true)));
        assert_eq!(kind(&idle("COMMIT", 0.2), None), None);
        assert_eq!(kind(&idle("INSERT INTO t VALUES (1)", 2.0), Some(&insert)), None);
    }

    fn relation(oid: u32, name: &str, root: u32, root_name: &str) -> Relation {
        Relation { oid, name: name.into(), root, root_name: root_name.into() }
    }

    #[test]
    fn the_locked_table_is_the_one_that_is_named() {
        let audit = relation(3, "public.audit", 3, "public.audit");
        let odd = relation(9, "s.\"T x\"", 9, "s.\"T x\"");
        let name = |relation: &str| WrittenName { schema: None, relation: relation.into() };
        let target = |locked: &[Relation], written: Option<&WrittenName>| {
            Target::locked(locked, written).map(|t| (t.name, t.relations))
        };
        let both = [audit.clone(), odd];
        assert_eq!(target(&both, Some(&name("T x"))), Some(("s.\"T x\"".into(), vec![9])));
        // A view, or a function that inserts: one that is written to all the same.
        assert_eq!(target(&both, Some(&name("v"))), Some(("public.audit".into(), vec![3])));
        assert_eq!(target(&[], Some(&name("v"))), None);
        let in_schema = WrittenName { schema: Some("x".into()), relation: "T x".into() };
        assert_eq!(target(&both, Some(&in_schema)).unwrap().0, "public.audit");
    }

    #[test]
    fn partitions_are_their_root() {
        let leaves = [relation(11, "public.p1", 10, "public.p"), relation(12, "public.p2", 10, "public.p")];
        let one = Target::locked(&leaves[..1], None).unwrap();
        assert_eq!((&*one.name, &*one.root_name, one.key), ("public.p1", "public.p", TableKey::Relation(10)));
        let two = Target::locked(&leaves, None).unwrap();
        assert_eq!((&*two.name, two.relations), ("public.p", vec![11, 12]));
        let elsewhere = Target::written("other", false, None);
        assert_eq!(elsewhere.name, "other: ?");
    }
}
