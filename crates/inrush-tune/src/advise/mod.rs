//! What limits bulk loads on a server, what to do about it, and what that costs.
//!
//! [`facts::read`] looks, [`Report::of`] judges with rules that are pure functions, [`apply`] makes and takes back what
//! needs no restart. Advice never weakens durability: what does is an option, with the loss said.

pub mod apply;
pub mod facts;
mod figures;
pub mod machine;
pub(crate) mod platform;
mod rules;

pub use facts::ServerFacts;

use serde::Serialize;

/// Version of the JSON form of [`Report`].
pub const VERSION: u32 = 1;

/// When a change takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// At once, in all sessions.
    Immediate,
    /// Once the server has read its configuration again.
    Reload,
    /// When the server has been started again.
    Restart,
    /// In sessions that begin afterwards.
    Session,
}

/// A setting that would serve bulk loads better with another value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// The setting.
    pub setting: &'static str,
    /// Its value, as SHOW prints it.
    pub now: String,
    /// The value to give it, as SHOW would print it; `None` where that depends on what cannot be seen.
    pub advised: Option<String>,
    /// What it limits, with the figures of this server.
    pub why: String,
    /// What the change costs.
    pub price: String,
    /// When it takes effect.
    pub effect: Effect,
    /// The statements, in order.
    pub sql: Vec<String>,
    /// Whether this role may give them.
    pub may: bool,
    /// Why they would change nothing.
    pub obstacle: Option<String>,
}

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Weight {
    /// It endangers the server or its data, and a load makes that more likely.
    Danger,
    /// It makes loads slower.
    Limit,
    /// Good to know.
    Fact,
}

/// Something about a server that is no setting to change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What it is about; scripts may match on it.
    pub about: &'static str,
    /// How much it matters.
    pub weight: Weight,
    /// What there is, with the figures of this server.
    pub text: String,
    /// What can be done, a sentence or a statement.
    pub remedy: Option<String>,
}

/// A setting that a rule has looked at and would leave as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Right {
    /// The setting.
    pub setting: &'static str,
    /// Its value, as SHOW prints it.
    pub now: String,
}

/// What there is to say about a server.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Version of this form.
    pub version: u32,
    /// What limits loads: changes to make.
    pub advice: Vec<Advice>,
    /// Changes that give something up, or that only some loads profit from.
    pub options: Vec<Advice>,
    /// What is no setting, what matters most first.
    pub findings: Vec<Finding>,
    /// Settings to leave as they are.
    pub already_right: Vec<Right>,
    /// Why no statement of this role could change anything.
    pub obstacle: Option<String>,
    /// What was read.
    pub facts: ServerFacts,
}

impl Report {
    /// Judges a server.
    pub fn of(facts: ServerFacts) -> Report {
        let mut report = Report {
            version: VERSION,
            advice: Vec::new(),
            options: Vec::new(),
            findings: rules::findings(&facts),
            already_right: Vec::new(),
            obstacle: obstacle(&facts),
            facts,
        };
        // The settings of a standby have no part in loads: those go to its primary.
        if report.facts.standby {
            return report;
        }
        for rule in rules::ADVICE {
            match (rule.judge)(&report.facts).filter(|advice| !waits_for_restart(advice, &report.facts)) {
                Some(advice) if rule.option => report.options.push(advice),
                Some(advice) => report.advice.push(advice),
                None if (rule.knows)(&report.facts) => {
                    if let Some(setting) = report.facts.setting(rule.setting) {
                        let now = setting.shown.clone();
                        report.already_right.push(Right { setting: rule.setting, now });
                    }
                }
                None => {}
            }
        }
        report
    }

    /// How many things limit loads: advice, and findings that are more than facts.
    pub fn limits(&self) -> usize {
        self.advice.len() + self.findings.iter().filter(|finding| finding.weight == Weight::Limit).count()
    }
}

/// Whether the advised value is in the configuration and waits for a restart: then that is all there is to do.
fn waits_for_restart(advice: &Advice, facts: &ServerFacts) -> bool {
    facts.setting(advice.setting).is_some_and(|setting| {
        setting.pending_restart && setting.in_auto_conf.is_some() && setting.in_auto_conf == advice.advised
    })
}

/// Why ALTER SYSTEM cannot be given on this server at all.
fn obstacle(facts: &ServerFacts) -> Option<String> {
    // PostgreSQL 17 and newer have a switch for those whose configuration is managed elsewhere.
    facts.is("allow_alter_system", "off").then(|| {
        "allow_alter_system is off: the configuration of this server is managed from outside, and the values belong \
         there"
            .to_owned()
    })
}

impl Advice {
    /// Advice to give a setting a value; `None` if the setting is not visible.
    fn set(
        facts: &ServerFacts,
        setting: &'static str,
        value: String,
        why: String,
        price: String,
    ) -> Option<Advice> {
        let known = facts.setting(setting)?;
        let effect = if known.context == "postmaster" { Effect::Restart } else { Effect::Reload };
        let obstacle = match known.source.as_str() {
            "command line" => {
                Some("it is set on the server's command line, which wins over ALTER SYSTEM".to_owned())
            }
            "environment variable" => {
                Some("it is set in the server's environment, which wins over ALTER SYSTEM".to_owned())
            }
            source @ ("user" | "database" | "database user" | "client" | "session") => Some(format!(
                "this session has its value from elsewhere ({source}), which wins over ALTER SYSTEM"
            )),
            _ => None,
        };
        Some(Advice {
            setting,
            now: known.shown.clone(),
            sql: vec![crate::settings::set_sql(setting, &value)],
            advised: Some(value),
            why,
            price,
            effect,
            may: known.may_alter,
            obstacle,
        })
    }
}
