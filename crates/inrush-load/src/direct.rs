//! The path through the server's extension: whether it is there, and whether a load may take it.

use crate::feed::columns_of;
use crate::options::{Options, Via};
use crate::plan::{Plan, WirePath};
use inrush_core::{Code, Error, Format, Result};
use inrush_encode::frames::{FrameEncoder, FrameLayout};
use inrush_sink::catalog::{Target, direct};
use std::sync::Arc;
use tokio_postgres::Client;

/// Takes the path if the extension is `there` and it can be taken, and says in the plan why or why not. With `--via
/// direct` it must be possible.
pub(crate) async fn choose(
    client: &Client,
    options: &Options,
    there: bool,
    target: &Target,
    plan: &mut Plan,
) -> Result<()> {
    if !matches!(options.via, Via::Auto | Via::Direct) {
        return Ok(());
    }
    let layouts = match (there, without_server(options, plan)) {
        (false, _) => Err("the database has no extension inrush".to_owned()),
        (true, Some(why)) => Err(why),
        (true, None) => layouts(client, plan).await?,
    };
    match layouts {
        Ok(layouts) => {
            plan.path = WirePath::Direct;
            plan.path_reason = "the extension is there, and the table qualifies".into();
            plan.layouts = layouts;
        }
        Err(why) if options.via == Via::Direct => {
            return Err(Error::new(Code::Clash, format!("--via direct is not possible: {why}"))
                .hint("Leave --via out: the fastest path that fits is taken."));
        }
        Err(why) if there => plan.path_reason = format!("{}; not direct: {why}", plan.path_reason),
        // Nobody who has not installed it wants to read about it each time, but where it would address the limit.
        Err(_) => {
            plan.extension_missing = without_server(options, plan).is_none() && direct::would_take(target);
        }
    }
    Ok(())
}

/// What the load itself has against the path.
pub(crate) fn without_server(options: &Options, plan: &Plan) -> Option<String> {
    if options.on_conflict.is_some() {
        return Some("rows are merged with --on-conflict".into());
    }
    if plan.freeze {
        return Some("only COPY writes rows frozen".into());
    }
    if let Some(encoding) = &plan.encoding {
        return Some(format!("the server recodes {encoding}, which it does for COPY text"));
    }
    let binary = plan.inputs.iter().any(|input| input.format == Format::Binary);
    binary.then(|| "COPY binary files go to the server as they are".into())
}

/// How the server wants the rows of each shape; or why it, or an encoder, does not take one.
async fn layouts(client: &Client, plan: &Plan) -> Result<Result<Vec<Arc<FrameLayout>>, String>> {
    let mut layouts = Vec::new();
    for shape in &plan.shapes {
        let names = shape.names();
        let mut layout = FrameLayout::parse(&direct::plan(client, &plan.table, &names).await?)?;
        if let Some(refusal) = layout.refusal {
            return Ok(Err(format!("{} ({})", refusal.code, refusal.detail)));
        }
        for enum_type in layout.enums() {
            layout.set_labels(enum_type, direct::labels(client, enum_type).await?);
        }
        layouts.push(Arc::new(layout));
    }
    for input in &plan.inputs {
        let shape = &plan.shapes[input.shape];
        let names = shape.names();
        let columns = columns_of(plan, input, &input.sources);
        if let Err(unsupported) = FrameEncoder::new(&layouts[input.shape], &names, &columns, &plan.session) {
            return Ok(Err(unsupported.to_string()));
        }
    }
    Ok(Ok(layouts))
}
