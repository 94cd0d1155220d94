//! The parts of a page that a Markdown file only names: the picture that can be stepped through, the code of a cure, the
//! search for an error text, and the bars over a table of figures.

use std::path::Path;

use anyhow::{Context as _, Result};
use first_aid::FirstAid;
use serde_json::{Value, json};

use crate::contents::Document;

/// `text` of `document` with its parts in place.
pub(crate) fn expanded(root: &Path, document: &Document, text: &str) -> Result<String> {
    let directory = root.join(document.source.parent().unwrap_or(Path::new("")));
    let mut result = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim();
        if let Some(file) = picture(trimmed) {
            result.push_str(&stepped(&directory.join(file))?);
        } else if let Some(id) =
            trimmed.strip_prefix("<!-- cure: ").and_then(|rest| rest.strip_suffix(" -->"))
        {
            result.push_str(&cure(root, id)?);
        } else if trimmed == "<!-- first-aid: search -->" {
            result.push_str(SEARCH);
        } else if trimmed == "<!-- bill -->" {
            result.push_str(BILL);
        } else {
            result.push_str(line);
        }
    }
    Ok(result)
}

/// The file of a run's picture, if the line is nothing else.
fn picture(line: &str) -> Option<&str> {
    let (_, target) = line.strip_prefix("![")?.split_once("](")?;
    target.strip_suffix(')').filter(|target| target.starts_with("pictures/"))
}

/// The picture within the page, with what its buttons need. Without scripts it stands still, and is whole.
fn stepped(file: &Path) -> Result<String> {
    let svg = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    // The site's own style knows the site's themes.
    let svg = match (svg.find("<style>"), svg.find("</style>")) {
        (Some(begin), Some(end)) => {
            format!("{}{}", &svg[..begin], svg[end + "</style>".len()..].trim_start())
        }
        _ => svg,
    };
    Ok(format!(
        "\n<figure class=\"run\" tabindex=\"0\">\n<div class=\"scroll\">\n{}</div>\n<figcaption hidden></figcaption>\n</figure>\n\n",
        svg.trim_start()
    ))
}

/// The programs of a cure: one fold a language, naive and right beside each other.
fn cure(root: &Path, id: &str) -> Result<String> {
    let file = root.join(format!("docs/cures/{id}.md"));
    let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let mut parts = text.split("\n## ");
    parts.next();
    let mut html = String::from("\n<div class=\"cure\">\n\n");
    for (place, part) in parts.enumerate() {
        let (language, body) = part.split_once('\n').unwrap_or((part, ""));
        let body = body.split("\nAll cures:").next().unwrap_or_default();
        let open = if place == 0 { " open" } else { "" };
        html.push_str(&format!(
            "<details{open} name=\"cure-{id}\"><summary>{language}</summary>\n\n<div class=\"pair\">\n\n"
        ));
        let (naive, right) = body.split_once("\n**Right.**").unwrap_or((body, ""));
        html.push_str(&format!("<div class=\"naive\">\n\n{}\n\n</div>\n\n", naive.trim()));
        if !right.is_empty() {
            html.push_str(&format!("<div class=\"right\">\n\n**Right.**{}\n\n</div>\n\n", right.trim_end()));
        }
        html.push_str("</div>\n\n</details>\n\n");
    }
    html.push_str("</div>\n\n");
    Ok(html)
}

/// The field for an error text. Without scripts it is not there, and the lists below lead to the case.
const SEARCH: &str = "\n<div class=\"first-aid\" hidden>\n<label for=\"error-text\"><strong>Paste your error text</strong> (it stays in this page)</label>\n<textarea id=\"error-text\" rows=\"4\" spellcheck=\"false\" placeholder=\"Operation cannot be fulfilled on …: the object has been modified; please apply your changes to the latest version and try again\"></textarea>\n<div class=\"answer\" aria-live=\"polite\"></div>\n<p><button type=\"button\" class=\"ask\">I have no text: ask me</button></p>\n</div>\n\n";

/// Where the script puts the bars of the table below it. Without scripts it is not there, and the table says the same.
const BILL: &str = "\n<div class=\"bill\" hidden></div>\n\n";

/// What the script of the front page reads.
pub(crate) fn data(root: &Path) -> Result<Value> {
    let all = FirstAid::get();
    let mut cases = Vec::new();
    for case in &all.cases {
        let page = format!("docs/first-aid/{}.html", case.id);
        anyhow::ensure!(
            root.join(format!("docs/first-aid/{}.md", case.id)).is_file(),
            "docs/first-aid/{}.md is not there; cargo lab --index --write-pages writes it",
            case.id
        );
        cases.push(json!({
            "id": case.id, "title": case.title, "matches": case.matches, "cause": case.cause, "fix": case.fix,
            "retry": case.retry, "page": page,
        }));
    }
    Ok(json!({"cases": cases, "questions": all.questions}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bars_of_a_table_have_a_place_above_it_and_the_table_stays() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        let documents = crate::documents(root).unwrap();
        let page = documents.iter().find(|one| one.source.ends_with("benchmarks/conflict.md")).unwrap();
        let table = "| writers | policy | p99 ms |\n|---:|---|---:|\n| 2 | a | 1.50 |\n";
        let text = expanded(root, page, &format!("<!-- bill -->\n\n{table}")).unwrap();
        assert_eq!(text, format!("{BILL}\n{table}"));
    }

    #[test]
    fn a_picture_is_a_line_of_its_own() {
        assert_eq!(picture("![The run](pictures/a.svg)"), Some("pictures/a.svg"));
        assert_eq!(picture("![other](rollout.svg)"), None);
        assert_eq!(picture("see ![x](pictures/a.svg)"), None);
    }
}
