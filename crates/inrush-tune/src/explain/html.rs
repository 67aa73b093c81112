//! What became of a query as a page: one file, which needs no script.

use super::{Report, Timing, Variant};
use inrush_page::bars::{Bar, Cache, Group, Scans, Setting};
use inrush_page::frame::CHARTS;
use inrush_page::{Column, Frame, Text, duration, grouped, megabytes, page, percent, table, text};
use std::fmt::Write as _;

impl Report {
    /// The report as a page: HTML that is well-formed XML too, with the report's JSON in it.
    pub fn html(&self) -> String {
        let title = format!("Scans of {}", self.table.name);
        let frame =
            Frame { title: &title, style: CHARTS, script: None, inrush: &self.inrush, version: self.version };
        page(&frame, self, |out| self.main(out, &title))
    }

    fn main(&self, out: &mut String, title: &str) {
        let _ = write!(
            out,
            "<header>\n<h1>{}</h1>\n<p class=\"soft\">PostgreSQL {} as role {}; {}, {} pages</p>\n",
            Text(title),
            Text(&self.server.version),
            Text(&self.server.role),
            megabytes(self.table.bytes),
            grouped(self.table.pages)
        );
        for sentence in &self.verdict.sentences {
            let _ = writeln!(out, "<p>{}</p>", Text(sentence));
        }
        let _ = writeln!(out, "<pre>{}</pre>\n</header>", Text(&self.query));
        if !self.verdict.reasons.is_empty() {
            let reasons = self.verdict.reasons.iter().map(|reason| reason.text.clone()).collect();
            list(out, "What the planner did not know", reasons);
        }
        self.bars(out);
        self.pages(out);
        list(out, "How it was measured", self.conditions());
        let absent = |one: &super::Absent| format!("{}: {}", one.method.name(), one.why);
        list(out, "Scans that the planner does not have here", self.absent.iter().map(absent).collect());
        let left = |one: &super::LeftOut| match &one.remedy {
            Some(remedy) => format!("{} {remedy}", one.what),
            None => one.what.clone(),
        };
        list(out, "Not done", self.left_out.iter().map(left).collect());
    }

    /// A bar for each scan and temperature, on one scale.
    fn bars(&self, out: &mut String) {
        let groups = self.scans.iter().map(|scan| {
            let mut bars = Vec::new();
            if self.cold.measured {
                bars.push(bar(scan, Cache::Cold, scan.cold.as_ref()));
            }
            bars.push(bar(scan, Cache::Warm, scan.warm.as_ref()));
            let mark = if scan.planners { ", the planner's choice" } else { "" };
            Group { name: format!("{}{mark}", scan.label), bars }
        });
        let scans = Scans {
            caption: "Time of each scan: the median of its runs.",
            settings: ["current setting", "other setting"],
            expected: "what the model says",
            groups: groups.collect(),
        };
        out.push_str("<section>\n<h2>Times</h2>\n");
        scans.render(out);
        out.push_str("</section>\n");
    }

    /// What the planner expected beside what was found.
    fn pages(&self, out: &mut String) {
        let columns = [
            Column::Words("scan"),
            Column::Figures("cost"),
            Column::Figures("rows expected"),
            Column::Figures("rows"),
            Column::Figures("pages expected"),
            Column::Figures("pages"),
            Column::Figures("lossy"),
            Column::Figures("rows rechecked"),
            Column::Figures("device reads, cold"),
            Column::Figures("read, cold"),
        ];
        let number = |n: f64| text(format!("{n:.0}"));
        let row = |scan: &Variant| {
            let cold = scan.cold.as_ref();
            vec![
                text(&scan.label),
                scan.total_cost.map_or_else(none, number),
                number(scan.rows_estimated),
                number(scan.rows),
                scan.heap_pages_estimated.map_or_else(none, number),
                scan.heap_pages.map_or_else(none, grouped),
                scan.lossy_pages.map_or_else(none, grouped),
                grouped(scan.rows_rechecked),
                cold.and_then(|cold| cold.device_reads).map_or_else(none, grouped),
                cold.and_then(|cold| cold.device_bytes).map_or_else(none, megabytes),
            ]
        };
        out.push_str("<section>\n<h2>Expected and found</h2>\n");
        let rows: Vec<Vec<String>> = self.scans.iter().map(row).collect();
        table(out, "What the planner expected of each scan, and what it found", &columns, &rows);
        out.push_str("</section>\n");
    }

    /// The conditions, a sentence each.
    fn conditions(&self) -> Vec<String> {
        let mut all = Vec::new();
        let concurrency = &self.concurrency;
        let why = concurrency.why_only_current.as_ref().map_or_else(String::new, |why| format!(" ({why})"));
        all.push(format!("effective_io_concurrency was {}{why}", concurrency.current));
        for mask in &concurrency.masks {
            all.push(format!(
                "tablespace {} has {} = {}, which wins over what a session sets",
                mask.tablespace, mask.option, mask.value
            ));
        }
        match &self.cold.why_not {
            Some(why) => all.push(format!("warm only: {why}")),
            None => {
                all.extend(self.cold.how.iter().map(|how| format!("before each cold run: {how}")));
                all.extend(self.cold.resident.map(|share| {
                    format!(
                        "at most {} of the files were in the file cache before a cold run",
                        percent(share)
                    )
                }));
                all.extend(self.cold.partial.clone());
            }
        }
        all.extend(self.server.settings.iter().map(|(name, value)| format!("{name} = {value}")));
        all.extend(self.notes.iter().cloned());
        let silent = self.scans.iter().find_map(|scan| scan.no_prediction.as_ref());
        all.extend(silent.map(|why| format!("no prediction: {why}")));
        all
    }
}

fn bar(scan: &Variant, cache: Cache, timing: Option<&Timing>) -> Bar {
    let note = match (timing, &scan.failed) {
        (Some(timing), _) if timing.runs.len() > 1 => {
            format!("{} to {}", duration(timing.least), duration(timing.most))
        }
        (None, Some(why)) => why.clone(),
        _ => String::new(),
    };
    Bar {
        name: if cache == Cache::Cold { "cold" } else { "warm" }.to_owned(),
        setting: if scan.current { Setting::Current } else { Setting::Recommended },
        cache,
        amount: timing.map(|timing| timing.seconds),
        figure: timing.map_or_else(|| "not run".to_owned(), |timing| duration(timing.seconds)),
        // The model speaks of cold scans.
        expected: scan.prediction.filter(|_| cache == Cache::Cold).map(|one| one.seconds),
        note,
    }
}

fn list(out: &mut String, heading: &str, items: Vec<String>) {
    if items.is_empty() {
        return;
    }
    let _ = write!(out, "<section>\n<h2>{}</h2>\n<ul>\n", Text(heading));
    for item in items {
        let _ = writeln!(out, "<li>{}</li>", Text(&item));
    }
    out.push_str("</ul>\n</section>\n");
}

fn none() -> String {
    "\u{2013}".to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::{Absent, Cold, Concurrency, Method, Run, Server, Table, Verdict};
    use super::*;
    use crate::explain::measure::{Reader, summary};
    use roxmltree::{Document, ParsingOptions};

    fn timing(seconds: f64) -> Option<Timing> {
        let reader = Reader { itself: true, page_bytes: 8192 };
        summary(vec![Run { seconds, ..Run::default() }; 3], reader)
    }

    #[test]
    fn the_page_is_well_formed_whatever_names_are() {
        let odd = "a<b>&\"</script>";
        let scan = |label: &str, cold| Variant {
            label: label.to_owned(),
            method: Method::Bitmap,
            cold: timing(cold),
            warm: timing(0.4),
            current: true,
            ..Variant::default()
        };
        let failed = Variant { failed: Some(odd.into()), label: "sequential".into(), ..Variant::default() };
        let report = Report {
            version: 1,
            inrush: "0".into(),
            query: format!("SELECT '{odd}'"),
            server: Server::default(),
            table: Table { name: odd.into(), ..Table::default() },
            concurrency: Concurrency::default(),
            cold: Cold { measured: true, ..Cold::default() },
            scans: vec![scan("bitmap at 1", 4.5), scan("bitmap at 32", 1.0), failed],
            absent: vec![Absent { method: Method::Brin, why: odd.into() }],
            verdict: Verdict { sentences: vec![odd.into()], ..Verdict::default() },
            notes: vec![odd.into()],
            left_out: Vec::new(),
        };
        let page = report.html();
        let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
        let document = Document::parse_with_options(&page, options).expect("well-formed");
        let words: Vec<&str> = document.descendants().filter_map(|node| node.text()).collect();
        assert!(words.contains(&odd) && words.contains(&"bitmap at 32"), "{words:?}");
        // Two scans with two bars each, and one that was not run.
        let bars = document
            .descendants()
            .filter(|node| node.attribute("class").is_some_and(|class| class.starts_with("current")));
        assert!(bars.count() >= 4);
        assert!(words.contains(&"not run"));
    }
}
