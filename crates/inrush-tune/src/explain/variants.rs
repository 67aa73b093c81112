//! Which ways of scanning there are to measure, and which the planner does not have.

use super::estimate::{heap_pages, work_mem_for};
use super::methods::{self, Scanned, method_of};
use super::plan::Explained;
use super::session::{Session, Setup};
use super::target::{Space, Target};
use super::{Absent, Concurrency, LeftOut, Method, Options, Server, Variant};
use inrush_core::{Error, Result, quote_ident};

/// Costs beyond this have what the planner was told to avoid: up to PostgreSQL 17 that is a cost of 1e10
/// (costsize.c, disable_cost).
const DISABLED: f64 = 1e10;

/// What a bitmap with more memory is called, unless that was not enough.
const EXACT: &str = ", exact";

/// EXPLAIN without running the query.
const PLAN: &str = "VERBOSE";

/// A variant with what brings it about.
pub(super) struct Planned {
    pub(super) variant: Variant,
    pub(super) setup: Setup,
    /// Whether a BRIN index is among its indexes: what that names is whole ranges of pages, whatever memory
    /// there is.
    pub(super) ranges: bool,
}

/// What the planner does on its own.
pub(super) struct Base {
    pub(super) setup: Setup,
    pub(super) plan: Explained,
}

impl Base {
    /// What is set in every run, the planner's own plan included.
    pub(super) fn setup(options: &Options) -> Setup {
        if options.parallel {
            return Setup::default();
        }
        Setup::default().with("max_parallel_workers_per_gather", "0").with("jit", "off")
    }

    pub(super) async fn plan(session: &Session, options: &Options) -> Result<Base> {
        let setup = Base::setup(options);
        let plan = session.explain(&setup, PLAN, &options.query, options.timeout).await?;
        Ok(Base { setup, plan })
    }
}

/// Finds the ways to scan the target, by asking the planner for each.
pub(super) async fn find(
    session: &Session,
    options: &Options,
    base: &Base,
    target: &Target,
    values: &[Value],
    server: &Server,
) -> Result<(Vec<Planned>, Vec<Absent>)> {
    let mut planned: Vec<Planned> = Vec::new();
    let mut absent = Vec::new();
    let own = method_of(&base.plan.top, target);
    if own.is_err() {
        let variant = variant_of(Method::Mixed, &base.plan, base, target);
        planned.push(Planned {
            variant: Variant { planners: true, ..variant },
            setup: base.setup.clone(),
            ranges: false,
        });
    }
    for method in Method::ALL {
        if own == Ok(method) {
            let variant = Variant { planners: true, ..variant_of(method, &base.plan, base, target) };
            spread(&mut planned, &variant, &base.setup, values, server);
            continue;
        }
        match force(session, options, base, target, method).await? {
            Ok((plan, setup)) => {
                let mut variant = variant_of(method, &plan, base, target);
                // Without the raise the planner makes another plan: there is no cost to take instead.
                if raised(&setup) && beside(&plan, target) {
                    variant.total_cost = None;
                }
                spread(&mut planned, &variant, &setup, values, server);
            }
            // Seldom possible, and an index scan is what there is instead.
            Err(_) if method == Method::IndexOnly => {}
            Err(why) => absent.push(Absent { method, why }),
        }
    }
    Ok((planned, absent))
}

/// Brings the planner to a method: the plan and what made it, or why it has none.
async fn force(
    session: &Session,
    options: &Options,
    base: &Base,
    target: &Target,
    method: Method,
) -> Result<Result<(Explained, Setup), String>> {
    if let Some(why) = impossible(method, target) {
        return Ok(Err(why));
    }
    let mut instead = String::new();
    for harder in [false, true] {
        let mut setup = base.setup.clone();
        setup.settings.extend(method.setup(harder).settings);
        let plan = session.explain(&setup, PLAN, &options.query, options.timeout).await?;
        match method_of(&plan.top, target) {
            Ok(found) if found == method => return Ok(Ok((plan, setup))),
            Ok(Method::Brin) if method == Method::Bitmap => {
                instead = "it makes bitmaps from the BRIN index, which answers the same conditions and is \
                           cheaper to read"
                    .to_owned();
            }
            Ok(found) => instead = format!("{} is what it takes even then", found.name()),
            Err(why) => instead = why,
        }
        if method != Method::Brin {
            break;
        }
    }
    let what = match method {
        Method::Sequential => "the planner does not scan it sequentially here",
        Method::Brin => "no BRIN index answers these conditions",
        Method::Bitmap if instead.contains("BRIN") => "the planner makes none",
        _ => "no index answers these conditions",
    };
    Ok(Err(format!("{what}: {instead}")))
}

/// Whether indexes other than BRIN have been made expensive.
fn raised(setup: &Setup) -> bool {
    setup.settings.iter().any(|(name, _)| *name == "cpu_index_tuple_cost")
}

/// Whether a plan has indexes of other tables in it.
fn beside(plan: &Explained, target: &Target) -> bool {
    plan.top.scans().iter().any(|scan| !target.has(scan.schema, scan.table) && !scan.indexes.is_empty())
}

/// Why a method cannot be had whatever the query is.
fn impossible(method: Method, target: &Target) -> Option<String> {
    let has = |brin: bool| target.indexes.iter().any(|index| (index.method == "brin") == brin);
    match method {
        Method::Index | Method::IndexOnly | Method::Bitmap if !has(false) => Some(
            if has(true) { "the table has BRIN indexes only" } else { "the table has no index" }.to_owned(),
        ),
        Method::Brin if !has(true) => Some("the table has no BRIN index".to_owned()),
        _ => None,
    }
}

/// The variant of a plan, before it is run.
fn variant_of(method: Method, plan: &Explained, base: &Base, target: &Target) -> Variant {
    let scanned = methods::scanned(&plan.top, target);
    let total = plan.top.number("Total Cost");
    let held = |cost: f64| (cost < DISABLED).then_some(cost);
    Variant {
        label: method.name().to_owned(),
        method,
        indexes: scanned
            .indexes
            .iter()
            .map(|(schema, name)| format!("{}.{}", quote_ident(schema), quote_ident(name)))
            .collect(),
        rest_differs: methods::rest(&plan.top, target) != methods::rest(&base.plan.top, target),
        workers: scanned.workers,
        stops_early: scanned.stops_early,
        scan_cost: held(scanned.cost),
        total_cost: total.and_then(held),
        rows_estimated: scanned.rows_estimated,
        heap_pages_estimated: matches!(method, Method::Bitmap | Method::Brin)
            .then_some(scanned.pages_estimated),
        ..Variant::default()
    }
}

/// A value of effective_io_concurrency and what sets it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Value {
    pub(super) value: u32,
    pub(super) current: bool,
    pub(super) setup: Setup,
}

/// The same variant at every value of effective_io_concurrency that means something to it.
fn spread(planned: &mut Vec<Planned>, variant: &Variant, setup: &Setup, values: &[Value], server: &Server) {
    if !reads_ahead(variant.method, server) {
        let variant = Variant { current: true, ..variant.clone() };
        planned.push(Planned { variant, setup: setup.clone(), ranges: false });
        return;
    }
    for value in values {
        let mut setup = setup.clone();
        setup.settings.extend(value.setup.settings.iter().cloned());
        setup.statements.extend(value.setup.statements.iter().cloned());
        let variant = Variant {
            label: format!("{} at {}", variant.label, value.value),
            concurrency: Some(value.value),
            current: value.current,
            planners: variant.planners && value.current,
            ..variant.clone()
        };
        planned.push(Planned { variant, setup, ranges: false });
    }
}

/// Whether effective_io_concurrency means something to a method. Up to PostgreSQL 17 only bitmap heap scans
/// look at it; in 18 all read streams do, sequential scans among them (read_stream.c), unless reads are only
/// hints to the kernel.
fn reads_ahead(method: Method, server: &Server) -> bool {
    match method {
        Method::Bitmap | Method::Brin => true,
        Method::Sequential => server.io_method.as_deref().is_some_and(|method| method != "sync"),
        Method::Index | Method::IndexOnly | Method::Mixed => false,
    }
}

/// What the runs of a scan have shown.
pub(super) fn take_figures(planned: &mut Planned, explained: &Explained, target: &Target) -> Scanned {
    let scanned = methods::scanned(&explained.top, target);
    planned.ranges = scanned
        .indexes
        .iter()
        .any(|(schema, name)| target.index(schema, name).is_some_and(|index| index.method == "brin"));
    let variant = &mut planned.variant;
    variant.rows = scanned.rows;
    variant.rows_estimated = scanned.rows_estimated;
    variant.heap_pages_estimated = variant.heap_pages_estimated.filter(|_| !scanned.repeated);
    variant.stops_early = scanned.stops_early;
    // Of the plan that was run: whether another setting has changed the cost is a finding.
    variant.scan_cost = variant.scan_cost.map(|_| scanned.cost).filter(|cost| *cost < DISABLED);
    variant.total_cost =
        variant.total_cost.and(explained.top.number("Total Cost")).filter(|cost| *cost < DISABLED);
    variant.exact_pages = scanned.exact;
    variant.lossy_pages = scanned.lossy;
    if variant.work_mem_kb.is_some() && scanned.lossy > Some(0) {
        variant.label = variant.label.replace(EXACT, ", larger");
    }
    variant.rows_rechecked = scanned.rechecked;
    variant.heap_fetches = scanned.heap_fetches;
    variant.index_pages = scanned.index_blocks;
    variant.heap_pages = heap_pages(variant.method, &scanned, target.pages());
    scanned
}

/// The same bitmap with memory enough to stay exact, for one that was not.
pub(super) fn exact(planned: &Planned) -> Option<Planned> {
    let variant = &planned.variant;
    if variant.method != Method::Bitmap
        || planned.ranges
        || variant.lossy_pages? == 0
        || variant.work_mem_kb.is_some()
    {
        return None;
    }
    let work_mem = work_mem_for(variant.exact_pages? + variant.lossy_pages?);
    let mut setup = planned.setup.clone();
    setup.settings.push(("work_mem", work_mem.to_string()));
    let variant = Variant {
        label: format!("{}{EXACT}", variant.label),
        work_mem_kb: Some(work_mem),
        planners: false,
        ..variant.clone()
    };
    Some(Planned { variant, setup, ranges: false })
}

/// The tablespace that one of the statements below alters, quoted as in it.
fn tablespace_of(statement: &str) -> Option<&str> {
    Some(statement.strip_prefix("ALTER TABLESPACE ")?.rsplit_once(" SET (")?.0)
}

/// The current effective_io_concurrency, and how to set another one where a tablespace masks it.
pub(super) fn values(
    options: &Options,
    session_value: u32,
    spaces: &[Space],
    left_out: &mut Vec<LeftOut>,
) -> (Vec<Value>, Concurrency) {
    const NAME: &str = "effective_io_concurrency";
    let masked: Vec<(&Space, u32)> =
        spaces.iter().filter_map(|space| Some((space, space.option(NAME)?.parse().ok()?))).collect();
    // With partitions in several tablespaces each has its own; the first one names the run.
    let current = masked.first().map_or(session_value, |(_, value)| *value);
    let mut said = Concurrency {
        current,
        masks: spaces.iter().flat_map(Space::masks).collect(),
        ..Concurrency::default()
    };
    let mut all = vec![Value { value: current, current: true, setup: Setup::default() }];
    match options.concurrency {
        None => {
            said.why_only_current = Some(
                "no other value was named (--concurrency), and the storage has not been measured".to_owned(),
            );
        }
        Some(value) if value == current => {
            said.why_only_current = Some("it is the value that would be recommended".to_owned());
        }
        Some(value) => match masked.iter().find(|(space, _)| !space.may_alter) {
            Some((space, now)) => {
                let name = quote_ident(&space.name);
                let why = format!(
                    "masked by {NAME} = {now} of tablespace {name}, which this role may not alter: only the \
                     current value was run"
                );
                said.why_only_current = Some(why.clone());
                let remedy =
                    format!("ALTER TABLESPACE {name} SET ({NAME} = {value}); by its owner or a superuser");
                left_out.push(LeftOut { what: why, remedy: Some(remedy) });
            }
            None => {
                let statements = masked
                    .iter()
                    .map(|(space, _)| {
                        format!("ALTER TABLESPACE {} SET ({NAME} = {value})", quote_ident(&space.name))
                    })
                    .collect();
                let setup = Setup { settings: vec![(NAME, value.to_string())], statements };
                all.push(Value { value, current: false, setup });
                said.compared.push(value);
            }
        },
    }
    (all, said)
}

/// Whether an error is one of a variant and not of the run: it took too long, a value is not taken, or its
/// tablespace is being altered by somebody else.
pub(super) fn of_variant(error: &Error, options: &Options, setup: &Setup) -> Option<String> {
    let state = error.sqlstate_text()?;
    // Who alters a row of pg_tablespace waits for whoever has altered it and not yet committed; when that one
    // commits, the server has no SQLSTATE of its own for it (heapam.c, simple_heap_update).
    let busy = state == "55P03" || (state == "XX000" && error.fact().contains("tuple concurrently updated"));
    let altered: Vec<&str> = setup.statements.iter().filter_map(|one| tablespace_of(one)).collect();
    if busy && !altered.is_empty() {
        return Some(format!(
            "{}: another session alters tablespace {}, run this again when that has been committed or rolled \
             back",
            error.fact(),
            altered.join(" or ")
        ));
    }
    match state {
        "57014" => Some(format!("it took longer than {} s", options.timeout.as_secs_f64())),
        // invalid_parameter_value, insufficient resources and such are of this plan only.
        "22023" | "53200" | "53400" | "54000" => Some(error.fact().to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(name: &str, option: Option<&str>, may_alter: bool) -> Space {
        let options = option.map(|value| ("effective_io_concurrency".to_owned(), value.to_owned()));
        Space { name: name.into(), options: options.into_iter().collect(), may_alter }
    }

    fn with(concurrency: Option<u32>) -> Options {
        Options { concurrency, ..Options::default() }
    }

    #[test]
    fn a_mask_is_altered_where_that_is_allowed() {
        let mut left = Vec::new();
        let (all, said) = values(&with(Some(32)), 1, &[space("pg_default", None, true)], &mut left);
        assert_eq!(
            (said.current, said.compared.as_slice(), all[1].setup.statements.len()),
            (1, &[32][..], 0)
        );

        let (all, said) = values(&with(Some(32)), 1, &[space("My Disk", Some("7"), true)], &mut left);
        assert_eq!((said.current, said.masks.len()), (7, 1));
        let statement = "ALTER TABLESPACE \"My Disk\" SET (effective_io_concurrency = 32)";
        assert_eq!(all[1].setup.statements, [statement]);
        assert!(left.is_empty());

        let (all, said) = values(&with(Some(32)), 1, &[space("x", Some("7"), false)], &mut left);
        assert_eq!((all.len(), said.current), (1, 7));
        assert!(said.why_only_current.unwrap().contains("masked by effective_io_concurrency = 7"));
        assert!(left[0].remedy.as_ref().unwrap().starts_with("ALTER TABLESPACE x SET"));
    }

    #[test]
    fn without_another_value_it_says_why() {
        let mut left = Vec::new();
        let (all, said) = values(&with(None), 16, &[], &mut left);
        assert!(all.len() == 1 && said.why_only_current.unwrap().contains("--concurrency"));
        let (all, said) = values(&with(Some(16)), 16, &[], &mut left);
        assert!(all.len() == 1 && said.why_only_current.is_some());
    }

    #[test]
    fn what_reads_ahead_depends_on_the_version() {
        let of =
            |io_method: Option<&str>| Server { io_method: io_method.map(Into::into), ..Server::default() };
        assert!(!reads_ahead(Method::Sequential, &of(None)));
        assert!(!reads_ahead(Method::Sequential, &of(Some("sync"))));
        assert!(reads_ahead(Method::Sequential, &of(Some("worker"))));
        assert!(reads_ahead(Method::Bitmap, &of(None)) && !reads_ahead(Method::Index, &of(Some("worker"))));
    }

    #[test]
    fn only_a_lossy_bitmap_wants_memory() {
        let mut variant =
            Variant { method: Method::Bitmap, label: "bitmap at 1".into(), ..Variant::default() };
        let planned =
            |variant: &Variant| Planned { variant: variant.clone(), setup: Setup::default(), ranges: false };
        assert!(exact(&planned(&variant)).is_none());
        (variant.exact_pages, variant.lossy_pages) = (Some(36_636), Some(79_633));
        let more = exact(&planned(&variant)).expect("lossy");
        assert_eq!(more.variant.work_mem_kb, Some(7994));
        assert_eq!(more.setup.settings, [("work_mem", "7994".to_owned())]);
        assert!(exact(&more).is_none());
        assert!(exact(&Planned { ranges: true, ..planned(&variant) }).is_none());
        variant.method = Method::Brin;
        assert!(exact(&planned(&variant)).is_none());
    }
}
