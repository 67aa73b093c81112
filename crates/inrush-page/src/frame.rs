//! What every page has around its own: head, style, footer, and its report as JSON.

use crate::markup::{Text, json_for_script};
use serde::Serialize;
use std::fmt::Write as _;

/// Style of every page.
const STYLE: &str = include_str!("page.css");

/// Style of [`Curves`](crate::curves::Curves) and [`Scans`](crate::bars::Scans), for pages that have some.
pub const CHARTS: &str = include_str!("charts.css");

/// What differs between the frames of pages.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    /// Title of the window.
    pub title: &'a str,
    /// Style beside that of every page. It is written as it is, so it must have neither `<` nor `&`.
    pub style: &'a str,
    /// Script for what is nice to have. It is written as it is, so it must have neither `<` nor `&&`.
    pub script: Option<&'a str>,
    /// Version of Inrush that made it.
    pub inrush: &'a str,
    /// Version of the report's JSON form.
    pub version: u32,
}

/// A page with its report as JSON in the element `report`; `main` writes what stands on it.
pub fn page(frame: &Frame<'_>, report: &impl Serialize, main: impl FnOnce(&mut String)) -> String {
    let mut out = String::with_capacity(64 << 10);
    let _ = write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <meta name=\"color-scheme\" content=\"light dark\"/>\n\
         <title>{} - Inrush</title>\n<style>\n{STYLE}{}</style>\n</head>\n<body>\n<main>\n",
        Text(frame.title),
        frame.style
    );
    main(&mut out);
    let _ = write!(
        out,
        "</main>\n<footer>made by inrush {}; the page holds the report as JSON (form {}) in its element \
         <code>report</code></footer>\n<script type=\"application/json\" id=\"report\">{}</script>\n",
        Text(frame.inrush),
        frame.version,
        json_for_script(report)
    );
    if let Some(script) = frame.script {
        let _ = write!(out, "<script>\n{script}</script>\n");
    }
    out.push_str("</body>\n</html>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::markup::tests::parsed;

    #[test]
    fn a_frame_holds_what_is_written_into_it() {
        let frame = Frame { title: "</title>&", style: CHARTS, script: None, inrush: "<1>", version: 3 };
        let page = page(&frame, &"</script>", |out| out.push_str("<h1>x</h1>\n"));
        let document = parsed(&page);
        let of =
            |name: &str| document.descendants().find(|node| node.has_tag_name(name)).expect("it is there");
        assert_eq!(of("title").text(), Some("</title>& - Inrush"));
        assert_eq!(
            of("h1").parent_element().map(|node| node.tag_name().name().to_owned()),
            Some("main".into())
        );
        assert!(of("footer").text().is_some_and(|text| text.starts_with("made by inrush <1>; ")));
        assert!(of("footer").text().is_some_and(|text| text.contains("(form 3)")));
        let scripts: Vec<_> = document.descendants().filter(|node| node.has_tag_name("script")).collect();
        assert_eq!(scripts.len(), 1);
        assert_eq!(
            serde_json::from_str::<String>(scripts[0].text().expect("JSON")).expect("JSON"),
            "</script>"
        );
        // Both styles are there, and nothing in them would end the element or fetch something.
        let style = of("style").text().expect("a style");
        assert!(style.contains(".scroll{") && style.contains(".curve"));
        assert!(!page.contains("@import") && !page.contains("url("));
    }
}
