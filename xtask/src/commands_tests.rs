//! The commands that documents show first: Cargo knows each of ours with its flags, and each file that they name is there. And what CI and
//! our tasks build is what `Cargo.lock` names.

use std::collections::BTreeMap;
use std::path::Path;

use clap::CommandFactory as _;
use images::programs::{OPERATORS, WITH_TOOLS};
use regex::Regex;

use crate::{Args, workspace};

/// Where a user looks for commands.
const DOCUMENTS: [&str; 4] =
    ["README.md", "CONTRIBUTING.md", "docs/guides/clusters.md", "docs/guides/operations.md"];

/// Of Cargo, and not of this repository.
const OF_CARGO: [&str; 7] = ["build", "clippy", "deny", "doc", "fmt", "run", "test"];

/// Where the flags of tasks are that the task runner hands on.
const HANDED_ON_TO: [&str; 2] = ["dev/src", "bench/src"];

fn read(path: &str) -> String {
    std::fs::read_to_string(workspace::root().join(path)).unwrap()
}

/// What the aliases of `.cargo/config.toml` stand for.
fn aliases() -> BTreeMap<String, String> {
    let config: toml_edit::DocumentMut = read(".cargo/config.toml").parse().unwrap();
    let table = config["alias"].as_table().unwrap();
    table.iter().map(|(name, is)| (name.to_owned(), is.as_str().unwrap().to_owned())).collect()
}

/// The files of Rust below a directory, with their paths.
fn sources(directory: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            found.push((path.display().to_string(), std::fs::read_to_string(&path).unwrap()));
        }
    }
    found
}

/// The commands behind a prompt, in words: without what is in quotes, and without comments.
fn commands(document: &str) -> Vec<Vec<String>> {
    let lines = document.lines().filter_map(|line| line.trim_start().strip_prefix("$ "));
    let lines = lines.map(|line| line.split('"').step_by(2).collect::<Vec<_>>().join(" "));
    let mut found = Vec::new();
    for line in lines {
        let line = line.split(" #").next().unwrap_or_default();
        let parts = line.split(['|', ';', '&']);
        found.extend(parts.map(|part| part.split_whitespace().map(str::to_owned).collect::<Vec<_>>()));
    }
    found.retain(|words| !words.is_empty());
    found
}

/// Whether a task takes a flag: it declares it, or what it hands its flags on to does.
fn takes(task: &clap::Command, flag: &str) -> bool {
    let declares = task.get_arguments().any(|argument| argument.get_long() == Some(flag));
    let hands_on = task.get_arguments().any(clap::Arg::is_trailing_var_arg_set);
    let field = format!(" {}: ", flag.replace('-', "_"));
    let other = || {
        let mut all = HANDED_ON_TO.iter().flat_map(|directory| sources(&workspace::root().join(directory)));
        all.any(|(_, text)| text.contains(&field))
    };
    flag == "help" || declares || (hands_on && other())
}

/// What is wrong with a call of Cargo.
fn wrong_task(words: &[String]) -> Option<String> {
    let cargo = words.iter().position(|word| word == "cargo")?;
    let mut rest = words.iter().skip(cargo + 1).map(String::as_str);
    let mut name = rest.next()?;
    if OF_CARGO.contains(&name) {
        return None;
    }
    if !aliases().contains_key(name) {
        return Some(format!("cargo has no {name}"));
    }
    if name == "lab" {
        return None;
    }
    if name == "xtask" {
        name = rest.next()?;
    }
    let all = Args::command();
    let Some(task) = all.find_subcommand(name) else { return Some(format!("there is no task {name}")) };
    let mut flags =
        rest.filter_map(|word| word.strip_prefix("--")).map(|flag| flag.split('=').next().unwrap_or(flag));
    let unknown = flags.find(|flag| !flag.is_empty() && !takes(task, flag))?;
    Some(format!("{name} takes no --{unknown}"))
}

/// The files of this repository, and of `cargo xtask image`, that a command names and that are not there.
fn wrong_file(words: &[String]) -> Option<String> {
    let root = workspace::root();
    let chart = match words {
        [helm, verb, _, chart, ..]
            if helm == "helm" && ["install", "upgrade", "template"].contains(&&**verb) =>
        {
            Some(chart)
        }
        _ => None,
    };
    let applied =
        words.windows(2).filter(|pair| ["-f", "--filename"].contains(&&*pair[0])).map(|pair| &pair[1]);
    let ours = words.iter().filter(|word| {
        word.split_once('/').is_some_and(|(first, _)| first != "target" && root.join(first).is_dir())
    });
    let named = chart.into_iter().chain(applied).chain(ours);
    let mut named = named.filter(|word| *word != "-" && !word.contains("://") && *word != "FILE");
    if let Some(gone) = named.find(|word| !root.join(word).exists()) {
        return Some(format!("there is no file {gone}"));
    }
    let archive = |word: &str| format!("target/images/{word}.tar");
    let archives: Vec<String> = OPERATORS.iter().chain([&WITH_TOOLS]).map(|name| archive(name)).collect();
    let mut of_images = words.iter().filter(|word| word.starts_with("target/images/"));
    let gone = of_images.find(|word| !archives.contains(word))?;
    Some(format!("cargo xtask image makes no {gone}"))
}

fn complaints(document: &str) -> Vec<String> {
    let all = commands(document);
    all.iter().flat_map(|words| [wrong_task(words), wrong_file(words)]).flatten().collect()
}

#[test]
fn the_commands_of_documents_are_there_with_their_flags_and_files() {
    for document in DOCUMENTS {
        let text = read(document);
        assert!(commands(&text).len() > 3, "{document} has no commands");
        assert_eq!(complaints(&text), [""; 0], "{document}");
    }
    for (wrong, why) in [
        ("$ cargo demonstrate", "cargo has no demonstrate"),
        ("$ cargo xtask pictures", "there is no task pictures"),
        ("$ cargo xtask image --quickly", "image takes no --quickly"),
        ("$ cargo e2e --knid", "e2e takes no --knid"),
        ("$ helm install tandem chart/tandem", "there is no file chart/tandem"),
        ("$ kubectl apply -f docs/start.yaml  # x", "there is no file docs/start.yaml"),
        ("$ kind load image-archive target/images/exec.tar", "makes no target/images/exec.tar"),
    ] {
        assert!(complaints(wrong).iter().any(|said| said.contains(why)), "{wrong}: {:?}", complaints(wrong));
    }
}

#[test]
fn the_quickstart_is_five_commands() {
    let readme = read("README.md");
    let section = readme.split("\n## ").find(|section| section.starts_with("Quickstart on kind")).unwrap();
    let block = section.split("```").nth(1).unwrap();
    assert_eq!(commands(block).len(), 5, "{block}");
}

/// Cargo tells each program that it runs which package it is of. A build script that reads that runs again when another cargo inherits
/// it, and what depends on it is compiled once more, after each task and after each test.
#[test]
fn no_cargo_inherits_the_package_of_the_program_that_runs_it() {
    let own = Regex::new(r#"Command::new\(\s*"cargo"\s*\)"#).unwrap();
    let mut calls = Vec::new();
    for crate_ in ["bench", "dev", "e2e", "images", "lab", "testbed", "toolbox", "xtask"] {
        for (file, text) in sources(&workspace::root().join(crate_)) {
            if !file.ends_with("_tests.rs") {
                calls.extend(own.find_iter(&text).map(|_| file.clone()));
            }
        }
    }
    // With another toolchain, in a target directory of its own.
    assert!(
        calls.iter().all(|file| file.ends_with("xtask/src/package.rs")),
        "toolbox::workspace::cargo: {calls:?}"
    );
    assert_eq!(calls.len(), 2, "{calls:?}");
}

#[test]
fn what_ci_and_the_tasks_build_is_what_the_lock_file_names() {
    for (alias, is) in aliases() {
        assert!(is.contains(" --locked "), "the alias {alias} has no --locked");
    }
    let builds = "build|check|clippy|doc|metadata|package|run|rustdoc|test|tree";
    let in_shell = Regex::new(&format!(r"\bcargo ({builds}) ")).unwrap();
    for line in read(".ci/run").lines().filter(|line| !line.starts_with('#') && in_shell.is_match(line)) {
        assert!(line.contains(" --locked "), ".ci/run: {line}");
    }
    let in_rust = Regex::new(&format!(r#"\[\s*"({builds})"[^\]]*\]"#)).unwrap();
    let mut calls = 0;
    for crate_ in ["bench", "dev", "e2e", "images", "lab", "testbed", "toolbox", "xtask"] {
        for (file, text) in sources(&workspace::root().join(crate_)) {
            let is_cargos = ["cargo()", "\"cargo\"", "cargo.args("].iter().any(|call| text.contains(call));
            if !is_cargos || file.ends_with("_tests.rs") {
                continue;
            }
            for call in in_rust.find_iter(&text) {
                calls += 1;
                assert!(call.as_str().contains("\"--locked\""), "{file}: {}", call.as_str());
            }
        }
    }
    assert!(calls > 10, "only {calls} calls of Cargo are found");
}
