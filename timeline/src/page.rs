//! The page: one HTML file that loads nothing.

use anyhow::{Context as _, Result};
use serde_json::json;

use crate::model::{Model, RequestOutcome};

const TEMPLATE: &str = include_str!("../assets/page.html");
const STYLE: &str = include_str!("../assets/style.css");
const SCRIPTS: [&str; 5] = [
    include_str!("../assets/words.js"),
    include_str!("../assets/filters.js"),
    include_str!("../assets/drawing.js"),
    include_str!("../assets/table.js"),
    include_str!("../assets/page.js"),
];

/// The text of the page with this title, from the log called `source`.
///
/// # Errors
/// When the model cannot be written as JSON.
pub(crate) fn render(model: &Model, title: &str, source: &str) -> Result<String> {
    let data = serde_json::to_string(&json!({"source": source, "model": model})).context("no JSON")?;
    let script = format!("\"use strict\";\n(() => {{\n{}}})();\n", SCRIPTS.concat());
    let values = [
        ("title", escape(title)),
        ("source", escape(source)),
        ("summary", escape(&summary(model))),
        ("style", STYLE.to_owned()),
        // Nothing is escaped in a script element, so the data must not contain its end or the beginning of a comment.
        ("data", data.replace('<', "\\u003c")),
        ("script", script),
    ];
    Ok(fill(TEMPLATE, &values))
}

/// Replaces `{{name}}` in the template by values. Values themselves are not searched.
fn fill(template: &str, values: &[(&str, String)]) -> String {
    let mut page = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        page.push_str(before);
        let (name, after) = after.split_once("}}").unwrap_or((after, ""));
        page.push_str(values.iter().find(|(key, _)| *key == name).map_or("", |(_, value)| value));
        rest = after;
    }
    page.push_str(rest);
    page
}

/// A summary of the page in one sentence.
pub(crate) fn summary(model: &Model) -> String {
    let count = |outcome| model.requests.iter().filter(|of| of.outcome == outcome).count();
    let many = |count: usize, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
    let conflicts = match count(RequestOutcome::Conflict) {
        0 => "none of them answered 409".to_owned(),
        some => format!("{some} of them answered 409"),
    };
    format!(
        "{} by {} about {}, {conflicts}",
        many(model.requests.len(), "request"),
        many(model.writers.len(), "writer"),
        many(model.objects.len(), "object"),
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_not_searched_for_names() {
        let values = [("a", "{{b}}".to_owned()), ("b", "no".to_owned())];
        assert_eq!(fill("<{{a}}|{{none}}>", &values), "<{{b}}|>");
    }

    #[test]
    fn every_place_in_the_template_has_a_value() {
        let places: Vec<&str> =
            TEMPLATE.split("{{").skip(1).filter_map(|rest| rest.split("}}").next()).collect();
        assert_eq!(places, ["title", "style", "title", "source", "summary", "data", "script"]);
    }
}
