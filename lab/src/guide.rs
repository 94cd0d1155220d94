//! The code in a guide that people write: below a comment `<!-- code: FILE#REGION -->` stands a block that is copied from a program
//! that is compiled and run.

use std::path::{Path, PathBuf};

use crate::cures::regions::region;

/// The guide with such blocks, below `docs/`.
pub const THIRD_CONTROLLER: &str = "guides/third-controller.md";

/// The guide as it is, with the code of `cost_operator` as that is. `cargo lab --index --write-pages` writes it.
pub fn third_controller() -> String {
    let root = root();
    let guide = std::fs::read_to_string(root.join("docs").join(THIRD_CONTROLLER)).unwrap_or_default();
    filled(&guide, |file| std::fs::read_to_string(root.join(file)).ok())
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The guide with the block below each comment as its file has it. A region that is not there is said in the block, so that it is
/// noticed.
fn filled(guide: &str, read: impl Fn(&str) -> Option<String>) -> String {
    let mut text = String::new();
    // The code that is due, and then whether the old block is left out.
    let (mut due, mut is_old): (Option<String>, bool) = (None, false);
    for line in guide.lines() {
        if is_old {
            is_old = line != "```";
            if is_old {
                continue;
            }
        }
        text.push_str(line);
        text.push('\n');
        if let Some(named) = line.strip_prefix("<!-- code: ").and_then(|rest| rest.strip_suffix(" -->")) {
            let (file, name) = named.split_once('#').unwrap_or((named, ""));
            let code = read(file).and_then(|source| region(&source, &format!("guide: {name}")));
            due = Some(code.unwrap_or_else(|| format!("there is no region `guide: {name}` in {file}")));
        } else if line.starts_with("```")
            && let Some(code) = due.take()
        {
            text.push_str(&code);
            text.push('\n');
            is_old = true;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_below_a_comment_is_the_code_and_other_blocks_stay() {
        let read = |file: &str| (file == "a.rs").then(|| "x\n// guide: one\nfn f() {}\n// end\n".to_owned());
        let guide = "# G\n\n```sh\nls\n```\n\n<!-- code: a.rs#one -->\n```rust\nold\n\nolder\n```\n\nText.\n";
        let now = "# G\n\n```sh\nls\n```\n\n<!-- code: a.rs#one -->\n```rust\nfn f() {}\n```\n\nText.\n";
        assert_eq!(filled(guide, read), now);
        assert_eq!(filled(now, read), now);
    }

    #[test]
    fn a_region_that_is_not_there_is_said() {
        for missing in ["a.rs#two", "b.rs#one", "a.rs"] {
            let guide = format!("<!-- code: {missing} -->\n```rust\n```\n");
            let text = filled(&guide, |file| (file == "a.rs").then(String::new));
            assert!(text.contains("there is no region"), "{text}");
        }
    }

    #[test]
    fn the_guide_shows_every_region_of_the_program() {
        let guide = std::fs::read_to_string(root().join("docs").join(THIRD_CONTROLLER)).unwrap();
        let program = "lab/examples/cost_operator";
        let mut shown = 0;
        for file in ["main.rs", "contract.rs", "report.rs", "rbac.yaml"] {
            let source = std::fs::read_to_string(root().join(program).join(file)).unwrap();
            for name in
                source.lines().filter_map(|line| line.trim().split_once("guide: ")).map(|(_, name)| name)
            {
                assert!(
                    guide.contains(&format!("<!-- code: {program}/{file}#{name} -->\n```")),
                    "{file}: {name}"
                );
                shown += 1;
            }
        }
        assert!(shown > 4, "{shown} regions");
    }
}
