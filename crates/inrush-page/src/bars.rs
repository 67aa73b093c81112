//! Bars: plain ones, one below the other, and those of scans with their figures.

use crate::axis::{WIDTH, coordinate};
use crate::figures::figure;
use crate::markup::Text;
use std::fmt::Write as _;

/// Bars of seconds, one below the other, on one scale.
pub fn bars(out: &mut String, rows: &[(&str, f64)]) {
    let most = rows.iter().map(|(_, seconds)| *seconds).fold(0.0, f64::max);
    out.push_str("<dl class=\"bars\">\n");
    for (name, seconds) in rows {
        let width = if most > 0.0 { seconds / most * WIDTH } else { 0.0 };
        let _ = writeln!(
            out,
            "<dt>{}</dt><dd><svg viewBox=\"0 0 {WIDTH} 10\" preserveAspectRatio=\"none\" \
             aria-hidden=\"true\"><rect class=\"ground\" width=\"{WIDTH}\" height=\"10\"/>\
             <rect class=\"bar\" width=\"{}\" height=\"10\"/></svg><span>{}\u{a0}s</span></dd>",
            Text(name),
            coordinate(width),
            figure(*seconds)
        );
    }
    out.push_str("</dl>\n");
}

/// With which setting a scan ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    /// The one that is in force.
    Current,
    /// The one that is recommended.
    Recommended,
}

/// What was in memory when a scan began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cache {
    /// Nothing of what it reads.
    Cold,
    /// All of what it reads, or what there was room for.
    Warm,
}

/// One way to run a scan.
#[derive(Debug, Clone, PartialEq)]
pub struct Bar {
    /// What it is called in its group: `now: 1`.
    pub name: String,
    /// Its colour.
    pub setting: Setting,
    /// Whether the colour is full or a shade.
    pub cache: Cache,
    /// Its length; `None` draws nothing, and `figure` says why.
    pub amount: Option<f64>,
    /// The amount with its unit, as it is to be read.
    pub figure: String,
    /// An amount that was expected: a line across the bar.
    pub expected: Option<f64>,
    /// What else is to be said about it, or nothing.
    pub note: String,
}

/// The ways of one scan.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// The scan: `bitmap heap scan, 53 % of the pages`.
    pub name: String,
    /// Its ways.
    pub bars: Vec<Bar>,
}

/// Bars of scans on one scale, those of a scan together. It is a table with a drawing in each row: whoever
/// does not see the drawings has the figures.
#[derive(Debug, Clone, PartialEq)]
pub struct Scans<'a> {
    /// What the amounts are, as the caption of the table.
    pub caption: &'a str,
    /// What [`Setting::Current`] and [`Setting::Recommended`] are called in the legend.
    pub settings: [&'a str; 2],
    /// What a line across a bar means, if there are some.
    pub expected: &'a str,
    /// The scans.
    pub groups: Vec<Group>,
}

impl Scans<'_> {
    /// The bars as a table, with a legend if more than one kind is there.
    pub fn render(&self, out: &mut String) {
        let all = || self.groups.iter().flat_map(|group| &group.bars);
        let amounts = all().flat_map(|bar| [bar.amount, bar.expected]).flatten();
        let most = amounts.filter(|amount| amount.is_finite()).fold(0.0, f64::max);
        let share = |amount: f64| {
            let share = if most > 0.0 && amount.is_finite() { (amount / most).clamp(0.0, 1.0) } else { 0.0 };
            coordinate(share * WIDTH)
        };
        self.legend(out);
        let _ = write!(
            out,
            "<table class=\"scans\"><caption>{}</caption>\n<thead><tr><th scope=\"col\">run</th><td></td>\
             <th scope=\"col\" class=\"n\">figure</th></tr></thead>\n",
            Text(self.caption)
        );
        for group in &self.groups {
            let _ = writeln!(
                out,
                "<tbody><tr><th scope=\"rowgroup\" colspan=\"3\">{}</th></tr>",
                Text(&group.name)
            );
            for bar in &group.bars {
                let _ = write!(out, "<tr><th scope=\"row\">{}</th><td class=\"way\">", Text(&bar.name));
                if let Some(amount) = bar.amount {
                    let _ = write!(
                        out,
                        "<svg viewBox=\"0 0 {WIDTH} 10\" preserveAspectRatio=\"none\" aria-hidden=\"true\">\
                         <rect class=\"ground\" width=\"{WIDTH}\" height=\"10\"/><rect class=\"{}\" \
                         width=\"{}\" height=\"10\"/>",
                        class(bar.setting, bar.cache),
                        share(amount)
                    );
                    if let Some(expected) = bar.expected {
                        let _ = write!(
                            out,
                            "<path class=\"expected\" {} d=\"M{} 0V10\"/>",
                            crate::axis::EVEN,
                            share(expected)
                        );
                    }
                    out.push_str("</svg>");
                }
                if !bar.note.is_empty() {
                    let _ = write!(out, "<span class=\"soft\">{}</span>", Text(&bar.note));
                }
                let _ = writeln!(out, "</td><td class=\"n\">{}</td></tr>", Text(&bar.figure));
            }
            out.push_str("</tbody>\n");
        }
        out.push_str("</table>\n");
    }

    fn legend(&self, out: &mut String) {
        let all = || self.groups.iter().flat_map(|group| &group.bars).filter(|bar| bar.amount.is_some());
        let kinds = [
            (Setting::Current, Cache::Cold),
            (Setting::Recommended, Cache::Cold),
            (Setting::Current, Cache::Warm),
            (Setting::Recommended, Cache::Warm),
        ];
        let there: Vec<_> =
            kinds.into_iter().filter(|kind| all().any(|bar| (bar.setting, bar.cache) == *kind)).collect();
        // Of one temperature the legend need not speak.
        let both = [Cache::Cold, Cache::Warm].iter().all(|cache| there.iter().any(|kind| kind.1 == *cache));
        let expected = all().any(|bar| bar.expected.is_some());
        if there.len() + usize::from(expected) < 2 {
            return;
        }
        out.push_str("<ul class=\"legend\">\n");
        for (setting, cache) in there {
            let name = match setting {
                Setting::Current => self.settings[0],
                Setting::Recommended => self.settings[1],
            };
            let temperature = match cache {
                _ if !both => "",
                Cache::Cold => ", cold",
                Cache::Warm => ", warm",
            };
            let _ = writeln!(
                out,
                "<li><svg class=\"key\" viewBox=\"0 0 1 1\" aria-hidden=\"true\"><rect class=\"{}\" \
                 width=\"1\" height=\"1\"/></svg>{}{temperature}</li>",
                class(setting, cache),
                Text(name)
            );
        }
        if expected {
            let _ = writeln!(
                out,
                "<li><svg class=\"key\" viewBox=\"0 0 10 10\" aria-hidden=\"true\"><path class=\"expected\" \
                 d=\"M5 0V10\"/></svg>{}</li>",
                Text(self.expected)
            );
        }
        out.push_str("</ul>\n");
    }
}

/// The style class of a bar.
fn class(setting: Setting, cache: Cache) -> &'static str {
    match (setting, cache) {
        (Setting::Current, Cache::Cold) => "current",
        (Setting::Current, Cache::Warm) => "current warm",
        (Setting::Recommended, Cache::Cold) => "recommended",
        (Setting::Recommended, Cache::Warm) => "recommended warm",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::markup::tests::parsed;

    fn bar(setting: Setting, cache: Cache, amount: Option<f64>) -> Bar {
        let figure = amount.map_or("<not run>".to_owned(), |amount| format!("{amount} s"));
        Bar { name: "a & b".into(), setting, cache, amount, figure, expected: None, note: String::new() }
    }

    fn widths(markup: &str) -> Vec<String> {
        let document = parsed(markup);
        let rects = document.descendants().filter(|node| node.has_tag_name("rect"));
        let drawn = rects.filter(|node| node.attribute("class") != Some("ground"));
        drawn
            .filter_map(|node| node.attribute("width").filter(|width| *width != "1"))
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn bars_of_scans_are_on_one_scale() {
        use {Cache::*, Setting::*};
        let group = |bars| Group { name: "bitmap <scan>".into(), bars };
        let mut scans = Scans {
            caption: "Seconds.",
            settings: ["current setting", "recommended setting"],
            expected: "what the model says",
            groups: vec![
                group(vec![bar(Current, Cold, Some(4.0)), bar(Recommended, Cold, Some(1.0))]),
                group(vec![bar(Current, Warm, Some(0.5)), bar(Recommended, Warm, None)]),
            ],
        };
        let mut out = String::new();
        scans.render(&mut out);
        let markup = format!("<div>{out}</div>");
        assert_eq!(widths(&markup), ["1000", "250", "125"]);
        let document = parsed(&markup);
        let rows = document.descendants().filter(|node| node.attribute("scope") == Some("row"));
        assert_eq!(rows.count(), 4);
        // The scan that was not run says so, and has no drawing; the legend names what is there.
        let words: String = document.descendants().filter_map(|node| node.text()).collect();
        assert!(words.contains("<not run>") && words.contains("bitmap <scan>") && words.contains("a & b"));
        assert!(words.contains("current setting, warm") && !words.contains("recommended setting, warm"));
        assert!(!words.contains("what the model says"));

        // What was expected is on the same scale, even if it is the most.
        scans.groups[0].bars[1].expected = Some(8.0);
        let mut out = String::new();
        scans.render(&mut out);
        assert_eq!(widths(&format!("<div>{out}</div>")), ["500", "125", "62.5"]);
        assert!(out.contains("d=\"M1000 0V10\"") && out.contains("what the model says"), "{out}");
    }

    #[test]
    fn bars_of_nothing_are_drawn() {
        let amounts = [Some(0.0), Some(f64::NAN), Some(f64::INFINITY), None];
        let bars = amounts.map(|amount| bar(Setting::Current, Cache::Cold, amount)).to_vec();
        let groups = vec![Group { name: "x".into(), bars }, Group { name: "y".into(), bars: Vec::new() }];
        let mut out = String::new();
        Scans { caption: "", settings: ["", ""], expected: "", groups }.render(&mut out);
        assert_eq!(widths(&format!("<div>{out}</div>")), ["0", "0", "0"]);
        let mut out = String::new();
        bars_of(&mut out);
        parsed(&out);
        assert!(out.contains("width=\"0\"") && out.contains("width=\"1000\""), "{out}");
    }

    fn bars_of(out: &mut String) {
        super::bars(out, &[("none", 0.0), ("<some>", 2.0)]);
    }
}
