//! Which settings fit a measured storage. Pure rules: figures in, advice out.
//!
//! The rules are those of curves that were compared with scans: effective_io_concurrency is the smallest value whose
//! scans are nearly as fast as the fastest at every density that bitmap heap scans are for; io_workers are as many as
//! the storage has use for; random_page_cost is 1 + miss * (latency / time of a sequential page - 1), between 1.1 and
//! 4, because the planner has no notion of what is cached but through it.

mod costs;
mod depth;
mod workers;

use super::measured::{Measured, Mechanism};
use super::model::{Method, Model, ReadAhead, Scan};
use super::report::{Right, Server, TablespaceOption};
use super::verdict::{Class, Verdict};
use crate::advise::Effect;
use inrush_core::{quote_ident, quote_literal};
use serde::{Deserialize, Serialize};

/// A named scan is of a table of so many bytes.
const NAMED_TABLE: u64 = 1 << 30;

/// Where a setting is to be set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Place {
    /// ALTER TABLESPACE SET.
    Tablespace {
        /// The tablespace.
        name: String,
    },
    /// ALTER SYSTEM.
    System,
    /// The kernel of the server's machine.
    Device {
        /// The device, if it has a name.
        name: Option<String>,
    },
}

/// A setting that would serve scans better with another value.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Advice {
    /// The setting.
    pub setting: &'static str,
    /// The versions of PostgreSQL that it is for, where no server was asked.
    pub versions: Option<&'static str>,
    /// Where it is set.
    pub place: Place,
    /// The value that holds there now, if a server was asked.
    pub now: Option<String>,
    /// The value to give it.
    pub advised: String,
    /// Why, with figures of this storage.
    pub why: String,
    /// What the change costs.
    pub price: String,
    /// When it takes effect.
    pub effect: Effect,
    /// Whether --apply makes it: what needs no restart, holds in the server, and rests on figures that were measured.
    pub applied: bool,
    /// The lines that do it.
    pub lines: Vec<String>,
    /// Whether this role may give them.
    pub may: bool,
    /// Why they would change nothing, or cannot be given.
    pub obstacle: Option<String>,
    /// What scans take with the value of now and with this one.
    pub expected: Vec<NamedScan>,
}

/// A scan that everybody knows, now and then.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NamedScan {
    /// What is scanned: `bitmap heap scan of 10 % of 1 GiB, cold`.
    pub name: String,
    /// How.
    pub method: Method,
    /// Share of the pages that is read.
    pub density: f64,
    /// Seconds with the settings of now.
    pub now_seconds: f64,
    /// Seconds with what is advised.
    pub then_seconds: f64,
}

/// From where on a bitmap heap scan is slower than reading the whole table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Dense {
    /// Share of the pages from which on a sequential scan is faster.
    pub above: f64,
    /// What to do about such scans, for people.
    pub text: String,
    /// The lines for a session or a query.
    pub lines: Vec<String>,
}

/// What rules look at.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The storage.
    pub measured: &'a Measured,
    /// What it was judged to be.
    pub verdict: &'a Verdict,
    /// The server, or one as it is by default.
    pub server: &'a Server,
    /// The versions that a server as it is by default stands for.
    pub versions: Option<&'static str>,
    /// The tablespace, if the server was asked.
    pub tablespace: Option<&'a Tablespace>,
}

/// A tablespace as far as its scans are concerned.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Tablespace {
    /// Its name.
    pub name: String,
    /// Its options.
    pub options: Vec<TablespaceOption>,
    /// What the settings of the same names are, as pg_settings has them.
    pub settings: Vec<TablespaceOption>,
    /// Whether this role owns it, or is a superuser.
    pub may_alter: bool,
    /// The settings of the server that this role may give to ALTER SYSTEM, and what stands against it.
    pub system: Vec<SystemSetting>,
}

/// A setting that is set with ALTER SYSTEM.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SystemSetting {
    /// Its name.
    pub name: &'static str,
    /// Whether this role may set it.
    pub may: bool,
    /// Why ALTER SYSTEM would change nothing.
    pub obstacle: Option<String>,
}

impl Tablespace {
    /// The value that holds for scans of the tablespace: its option, or else the setting.
    pub fn holds(&self, name: &str) -> Option<&str> {
        let named = |list: &'_ [TablespaceOption]| list.iter().position(|one| one.name == name);
        match named(&self.options) {
            Some(at) => self.options.get(at).map(|one| one.value.as_str()),
            None => named(&self.settings).and_then(|at| self.settings.get(at)).map(|one| one.value.as_str()),
        }
    }
}

/// All that the rules have to say.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Judged {
    /// Settings to change.
    pub advice: Vec<Advice>,
    /// Settings that stay.
    pub right: Vec<Right>,
    /// Settings of which the figures do not say what is better.
    pub undecided: Vec<Right>,
    /// Named scans with all of it.
    pub scans: Vec<NamedScan>,
    /// From where on bitmap heap scans do not pay.
    pub dense: Option<Dense>,
}

/// Judges the settings of a server's scans on a storage.
pub fn judge(context: &Context<'_>) -> Judged {
    let mut judged = Judged::default();
    if context.verdict.class == Class::CannotTell {
        workers::through_the_server(context, &mut judged);
        return judged;
    }
    let workers = workers::advised(context);
    let depth = depth::advised(context, workers);
    match depth {
        Some(depth) => depth::judge(context, depth, workers, &mut judged),
        None => judged.undecided.push(Right {
            setting: "effective_io_concurrency",
            now: context.concurrency_now().to_string(),
            why: "the time was too short to replay scans on this storage: allow more seconds".to_owned(),
        }),
    }
    workers::judge(context, workers, depth, &mut judged);
    costs::random_page_cost(context, &mut judged);
    costs::read_ahead(context, &mut judged);
    judged.scans = named_scans(
        context,
        context.read_ahead(context.concurrency_now(), context.server.io_workers),
        context.read_ahead(depth.unwrap_or_else(|| context.concurrency_now()), workers),
    );
    judged.dense = costs::dense(context, depth, workers);
    judged
}

/// The effective_io_concurrency that fits a server's scans on a storage; `None` where it cannot be told.
pub fn concurrency(measured: &Measured, server: &Server) -> Option<u32> {
    let verdict = Verdict::of(measured);
    let context = Context { measured, verdict: &verdict, server, versions: None, tablespace: None };
    if verdict.class == Class::CannotTell {
        return None;
    }
    depth::advised(&context, workers::advised(&context))
}

impl Context<'_> {
    /// effective_io_concurrency as it holds now; where no server was asked, what it is by default.
    fn concurrency_now(&self) -> u32 {
        let default = if self.server.version_num < 180_000 { 1 } else { 16 };
        self.tablespace
            .and_then(|tablespace| tablespace.holds("effective_io_concurrency")?.parse().ok())
            .unwrap_or(default)
    }

    fn read_ahead(&self, concurrency: u32, workers: Option<u32>) -> ReadAhead {
        ReadAhead::of(self.server.version_num, self.server.io_method.as_deref(), workers, concurrency)
    }

    /// How scans read ahead with so many workers.
    fn mechanism(&self, workers: Option<u32>) -> Mechanism {
        Mechanism::of(self.server.version_num, self.server.io_method.as_deref(), workers)
    }

    /// Advice about an option of the tablespace.
    fn option(&self, setting: &'static str, advised: String, why: String, price: String) -> Advice {
        let (place, lines) = match self.tablespace {
            Some(tablespace) => {
                let name = tablespace.name.clone();
                let sql = format!("ALTER TABLESPACE {} SET ({setting} = {advised});", quote_ident(&name));
                (Place::Tablespace { name }, vec![sql])
            }
            None => {
                (Place::System, vec![format!("ALTER SYSTEM SET {setting} = {};", quote_literal(&advised))])
            }
        };
        let standby = self.server.standby;
        Advice {
            setting,
            versions: self.versions,
            place,
            now: self.tablespace.and_then(|tablespace| tablespace.holds(setting)).map(str::to_owned),
            advised,
            why,
            price,
            effect: Effect::Immediate,
            applied: !standby && self.tablespace.is_some(),
            lines,
            may: self.tablespace.is_none_or(|tablespace| tablespace.may_alter),
            obstacle: standby.then(|| {
                "the server is a standby: the option is set on its primary, and holds for both".to_owned()
            }),
            expected: Vec::new(),
        }
    }

    /// Advice about a setting of the server.
    fn system(
        &self,
        setting: &'static str,
        now: Option<String>,
        advised: String,
        why: String,
        price: String,
        effect: Effect,
    ) -> Advice {
        let known =
            self.tablespace.and_then(|tablespace| tablespace.system.iter().find(|one| one.name == setting));
        Advice {
            setting,
            versions: self.versions,
            place: Place::System,
            now,
            lines: vec![format!("ALTER SYSTEM SET {setting} = {};", quote_literal(&advised))],
            advised,
            why,
            price,
            effect,
            applied: effect == Effect::Reload && self.tablespace.is_some(),
            may: known.is_none_or(|known| known.may),
            obstacle: known.and_then(|known| known.obstacle.clone()),
            expected: Vec::new(),
        }
    }
}

/// What known scans take now and then: bitmap heap scans of a hundredth, a tenth and half of a table.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // pages of 1 GiB
fn named_scans(context: &Context<'_>, now: ReadAhead, then: ReadAhead) -> Vec<NamedScan> {
    let model = Model::new(context.measured);
    let table_pages = NAMED_TABLE / super::measured::PAGE;
    let seconds = |density: f64, ahead: ReadAhead| {
        let heap_pages = (table_pages as f64 * density) as u64;
        let scan = Scan {
            method: Method::Bitmap,
            table_pages,
            heap_pages,
            index_pages: 0,
            sweeps: None,
            warm_seconds: 0.0,
        };
        Some(model.predict(&scan, ahead)?.seconds)
    };
    [0.01, 0.1, 0.5]
        .into_iter()
        .filter_map(|density| {
            Some(NamedScan {
                name: format!("bitmap heap scan of {:.0} % of 1 GiB, cold", density * 100.0),
                method: Method::Bitmap,
                density,
                now_seconds: seconds(density, now)?,
                then_seconds: seconds(density, then)?,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests;
