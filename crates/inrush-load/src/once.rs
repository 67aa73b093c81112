//! Is this load new, half done or done? The decision that makes a command exactly-once.

use crate::options::Options;
use crate::plan::Plan;
use inrush_core::{Code, Error, Result};
use inrush_sink::ledger::{Ledger, LoadState, NewLoad, RangeDone, StoredLoad};
use inrush_source::Identity;
use serde_json::{Value, json};
use std::time::Duration;
use tokio_postgres::Client;

/// How long the server processes of a dead run may take to end by themselves.
const GRACE: Duration = Duration::from_secs(3);

/// What to do with a load.
pub(crate) enum Verdict {
    /// Load what is not in `done`.
    Load { load: StoredLoad, done: Vec<RangeDone>, resumed: bool },
    /// Nothing: it has been loaded.
    Nothing { load: StoredLoad },
}

/// Looks the load up and takes hold of it.
pub(crate) async fn open(
    client: &mut Client,
    ledger: &Ledger,
    options: &Options,
    plan: &Plan,
    notice: &dyn Fn(&str),
) -> Result<Verdict> {
    let inputs = identities(plan)?;
    let meaning = meaning(options, plan);
    let key = key(plan);
    let storage = ledger.storage(client, plan.table.oid).await?;
    let name = options.load_id.as_deref();

    // Found without the lock first: ending an earlier run's connections may take seconds.
    let found = ledger.opening(client, name, &key).await?.find(name).await?;
    if let Some(load) = found.filter(|load| load.state == LoadState::Open) {
        ledger.end_backends(client, load.id, GRACE, notice).await?;
    }
    let opening = ledger.opening(client, name, &key).await?;
    let found = opening.find(name).await?;
    let new = NewLoad {
        name,
        key: &key,
        table: &plan.table,
        incarnation: &storage,
        inputs: &inputs,
        meaning: &meaning,
        command: &options.command,
    };
    let decision = match &found {
        None => Decision::New,
        Some(load) => match decide(load, options, plan, &inputs, &meaning, &storage) {
            // Nothing of it is in the table: whatever has changed since, it is in nobody's way.
            Err(_) if load.state == LoadState::Open && !opening.has_units(load).await? => Decision::New,
            decision => decision?,
        },
    };
    match (decision, found) {
        (Decision::Nothing, Some(load)) => Ok(Verdict::Nothing { load }),
        (Decision::TakeOver { rebase }, Some(load)) => {
            let load = opening.take_over(load.id, rebase.then_some((plan.table.oid, &storage[..]))).await?;
            let done = ledger.done_ranges(client, &load).await?;
            Ok(Verdict::Load { load, done, resumed: true })
        }
        (_, found) => {
            // An open load that is given up for a new one must not go on behind its back.
            let open = found.filter(|load| load.state == LoadState::Open).map(|load| load.id);
            let load = opening.create(&new, open).await?;
            Ok(Verdict::Load { load, done: Vec::new(), resumed: false })
        }
    }
}

enum Decision {
    New,
    Nothing,
    /// Go on; with `rebase` against the table as it is now.
    TakeOver {
        rebase: bool,
    },
}

fn decide(
    load: &StoredLoad,
    options: &Options,
    plan: &Plan,
    inputs: &[Value],
    meaning: &Value,
    storage: &[String],
) -> Result<Decision> {
    if options.again || load.state == LoadState::Undone {
        return Ok(Decision::New);
    }
    let open = load.state == LoadState::Open;
    let changed = changed_input(load, inputs, plan);
    let same_table =
        load.target == plan.table.oid && load.incarnation.iter().all(|s| storage.binary_search(s).is_ok());
    let ways = format!(
        "`--resume` loads what load {0} has not recorded, `--again` loads everything, `inrush loads undo {0}` \
         removes the rows of load {0} first.",
        load.id
    );
    if let Some(changed) = changed {
        return match changed {
            _ if options.resume => Ok(Decision::TakeOver { rebase: !same_table }),
            Changed::Stream(_) if open => Ok(Decision::New),
            Changed::Touched(what) | Changed::Stream(what) => Err(Error::new(
                Code::SourceChanged,
                format!("{what}, and load {} of {} was from it", load.id, load.started_at),
            )
            .hint(ways)),
            Changed::Content(what) if open || options.load_id.is_some() => Err(Error::new(
                Code::SourceChanged,
                format!("{what} since load {} began on {} and stopped half-way", load.id, load.started_at),
            )
            .hint(ways)),
            Changed::Content(_) => Ok(Decision::New),
        };
    }
    if load.meaning != *meaning && !options.resume {
        if !open && options.load_id.is_none() {
            return Ok(Decision::New);
        }
        return Err(Error::new(
            Code::Clash,
            format!(
                "load {} of the same input has other settings ({})",
                load.id,
                difference(&load.meaning, meaning)
            ),
        )
        .hint(format!("Give the command as it was then, or: {ways}")));
    }
    // The unlogged ledger was reset together with the table by a crash of the server.
    let reset = load.unlogged && !open && load.units > 0 && load.units_now == 0;
    if !same_table && !options.resume {
        return Err(Error::new(
            Code::Incarnation,
            format!(
                "{} has been dropped, truncated or rewritten since load {} of {}",
                plan.table.qualified(),
                load.id,
                load.started_at
            ),
        )
        .hint(format!("Its rows may be gone. {ways}")));
    }
    if open || reset {
        return Ok(Decision::TakeOver { rebase: !same_table });
    }
    Ok(Decision::Nothing)
}

/// How an input differs from what was recorded.
enum Changed {
    /// Same bytes as far as looked at, another time of change: cannot be told from a new delivery.
    Touched(String),
    /// Other content or size.
    Content(String),
    /// A stream: it cannot be compared as a whole, or its head differs.
    Stream(String),
}

fn changed_input(load: &StoredLoad, inputs: &[Value], plan: &Plan) -> Option<Changed> {
    if load.inputs.len() != inputs.len() {
        return Some(Changed::Content(format!(
            "the load had {} inputs, now there are {}",
            load.inputs.len(),
            inputs.len()
        )));
    }
    for ((then, now), input) in load.inputs.iter().zip(inputs).zip(&plan.inputs) {
        let (Ok(then), Ok(now)) = (
            serde_json::from_value::<Identity>(then.clone()),
            serde_json::from_value::<Identity>(now.clone()),
        ) else {
            return Some(Changed::Content(format!("what is recorded of {} cannot be read", input.name)));
        };
        if now.size.is_none() {
            if then.head_hash != now.head_hash {
                return Some(Changed::Stream(format!("{} begins with other bytes", input.name)));
            }
            if load.state == LoadState::Done && !input.wholly_hashed {
                return Some(Changed::Stream(format!("{} begins with the same bytes", input.name)));
            }
            continue;
        }
        if then.size != now.size || then.head_hash != now.head_hash || then.tail_hash != now.tail_hash {
            return Some(Changed::Content(format!("{} has changed", input.name)));
        }
        if then.mtime_ns != now.mtime_ns {
            return Some(Changed::Touched(format!(
                "{} has been written again (same size, head and tail)",
                input.name
            )));
        }
    }
    None
}

fn identities(plan: &Plan) -> Result<Vec<Value>> {
    plan.inputs
        .iter()
        .map(|input| {
            serde_json::to_value(&input.identity)
                .map_err(|e| Error::new(Code::Internal, format!("an identity is not JSON: {e}")))
        })
        .collect()
}

/// Target and paths: what makes two commands candidates for being the same load. Identity and settings are
/// compared afterwards, so that a difference is told instead of starting over.
fn key(plan: &Plan) -> String {
    let mut text = plan.table.qualified();
    for input in &plan.inputs {
        text.push('\0');
        text.push_str(&input.identity.path);
    }
    format!("{:032x}", xxhash_rust::xxh3::xxh3_128(text.as_bytes()))
}

/// What changes the meaning of the inputs.
fn meaning(options: &Options, plan: &Plan) -> Value {
    let inputs: Vec<Value> = plan
        .inputs
        .iter()
        .map(|input| {
            let columns = plan.shapes[input.shape].names();
            let fields: Vec<Value> = input
                .sources
                .iter()
                .map(|source| match source {
                    inrush_core::FieldSource::Field(i) => json!(i),
                    inrush_core::FieldSource::Constant(value) => {
                        json!(value.as_ref().map(|v| String::from_utf8_lossy(v).into_owned()))
                    }
                })
                .collect();
            json!({ "format": input.format, "header": input.header, "columns": columns, "fields": fields })
        })
        .collect();
    json!({ "inputs": inputs, "encoding": options.stated.encoding })
}

/// The first setting that differs, in words.
fn difference(then: &Value, now: &Value) -> String {
    fn walk(path: &str, then: &Value, now: &Value) -> Option<String> {
        match (then, now) {
            (Value::Object(a), Value::Object(b)) => a.keys().chain(b.keys()).find_map(|k| {
                let path = if path.is_empty() { k.clone() } else { format!("{path}.{k}") };
                walk(&path, a.get(k).unwrap_or(&Value::Null), b.get(k).unwrap_or(&Value::Null))
            }),
            (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
                a.iter().zip(b).find_map(|(a, b)| walk(path, a, b))
            }
            (a, b) if a != b => Some(format!("{path}: {a} then, {b} now")),
            _ => None,
        }
    }
    walk("", then, now).unwrap_or_else(|| "none visible".to_owned())
}
