//! The parts of the programs that are on the pages: between `naive: ID` or `right: ID` and `end` in comments.

use std::path::{Path, PathBuf};

use super::{Form, Language};

/// The directory of the lab.
fn lab() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The file of a program; it need not exist.
pub fn file(id: &str, language: Language, form: Form) -> PathBuf {
    let name = id.replace('-', "_");
    match language {
        Language::ClientGo => lab().join(format!("cures/go/{name}_client_go.go")),
        Language::ControllerRuntime => lab().join(format!("cures/go/{name}_controller_runtime.go")),
        Language::Rust => lab().join(format!("src/cures/rust/{name}.rs")),
        Language::Kubectl => lab().join(format!("cures/kubectl/{id}.{}.sh", form.name())),
    }
}

/// The code of a program that a reader copies; `None` where there is no such program.
pub fn code(id: &str, language: Language, form: Form) -> Option<String> {
    region_of(&file(id, language, form), id, form)
}

fn region_of(file: &Path, id: &str, form: Form) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    region(&text, &format!("{}: {id}", form.name()))
}

/// The lines between a comment with this mark and one with `end`, without the indentation that all of them have.
pub(crate) fn region(text: &str, mark: &str) -> Option<String> {
    let is_mark = |line: &str, mark: &str| {
        line.trim().trim_start_matches(['/', '#']).trim() == mark && line.trim().starts_with(['/', '#'])
    };
    let lines: Vec<&str> = text
        .lines()
        .skip_while(|line| !is_mark(line, mark))
        .skip(1)
        .take_while(|line| !is_mark(line, "end"))
        .collect();
    let indentation = |line: &&str| line.len() - line.trim_start().len();
    let least = lines.iter().filter(|line| !line.trim().is_empty()).map(indentation).min()?;
    let cut: Vec<&str> = lines.iter().map(|line| line.get(least..).unwrap_or_default().trim_end()).collect();
    // Visible in this crate only because the driver is elsewhere.
    let cut: Vec<String> = cut.into_iter().map(|line| line.replace("pub(crate) ", "")).collect();
    Some(cut.join("\n").trim_matches('\n').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_what_stands_between_its_marks() {
        let text = "use x;\n    // naive: a\n    fn f() {\n        g();\n    }\n    // end\n    // right: a\n    fn h() {}\n    // end\n";
        assert_eq!(region(text, "naive: a").unwrap(), "fn f() {\n    g();\n}");
        assert_eq!(region(text, "right: a").unwrap(), "fn h() {}");
        assert_eq!(region("# naive: a\nx\n# end", "naive: a").unwrap(), "x");
        assert!(region(text, "right: b").is_none());
    }
}
