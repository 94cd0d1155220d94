//! Text to documents: YAML or JSON, one or many, and errors with the position of the problem. Independent of kinds.

use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

use serde_json::Value;
use thiserror::Error;

/// A file that cannot be used.
#[derive(Debug, Error)]
pub enum InputError {
    /// The file cannot be read.
    #[error("{file}: cannot be read")]
    Unreadable {
        /// The file.
        file: String,
        /// The I/O error.
        source: io::Error,
    },
    /// The text is neither YAML nor JSON.
    #[error("{file}, document {document}: is neither YAML nor JSON: {problem}")]
    Syntax {
        /// The file.
        file: String,
        /// Number of the document, from 1; empty ones do not count.
        document: usize,
        /// The parser's message.
        problem: String,
    },
    /// A document is no object, or a field of it does not have the type that its kind requires.
    #[error("{file}, document {document}{item}: {field}: {problem}")]
    Object {
        /// The file.
        file: String,
        /// Number of the document, from 1; empty ones do not count.
        document: usize,
        /// The item of a list and the object, as far as known.
        item: String,
        /// Path of the field.
        field: String,
        /// What is wrong with it.
        problem: String,
    },
}

/// The position of an object, for error messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At<'a> {
    pub(crate) file: &'a str,
    pub(crate) document: usize,
    pub(crate) item: Option<usize>,
}

impl At<'_> {
    pub(crate) fn error(self, object: Option<&str>, field: &str, problem: impl Into<String>) -> InputError {
        let mut item = self.item.map(|at| format!(", items[{at}]")).unwrap_or_default();
        if let Some(object) = object {
            item.push_str(&format!(" ({object})"));
        }
        let field =
            if field.is_empty() || field == "." { "the document".to_owned() } else { field.to_owned() };
        InputError::Object {
            file: self.file.to_owned(),
            document: self.document,
            item,
            field,
            problem: problem.into(),
        }
    }
}

/// The name of a file in messages.
pub(crate) fn title(file: &Path) -> String {
    if file.as_os_str() == "-" { "standard input".to_owned() } else { file.display().to_string() }
}

/// The documents of a file; `-` is standard input.
pub(crate) fn read(file: &Path) -> Result<Vec<Value>, InputError> {
    let name = title(file);
    let text = text(file).map_err(|source| InputError::Unreadable { file: name.clone(), source })?;
    parse(&name, &text)
}

fn text(file: &Path) -> io::Result<String> {
    if file.as_os_str() != "-" {
        return fs::read_to_string(file);
    }
    let mut text = String::new();
    io::stdin().lock().read_to_string(&mut text)?;
    Ok(text)
}

/// The documents of a text. JSON is tried first where the text looks like it: it is read much faster.
pub(crate) fn parse(file: &str, text: &str) -> Result<Vec<Value>, InputError> {
    if text.trim_start().starts_with('{') {
        let json: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(text).into_iter().collect();
        if let Ok(documents) = json {
            return Ok(documents);
        }
    }
    let mut documents = Vec::new();
    let mut bytes = text.as_bytes();
    // The reader's limits are for hostile input, and a dump of a large cluster is large. A node may be called `n`.
    let options = serde_saphyr::options! { budget: None, strict_booleans: true };
    for document in serde_saphyr::read_with_options::<_, Value>(&mut bytes, options) {
        let number = documents.len() + 1;
        documents.push(document.map_err(|error| InputError::Syntax {
            file: file.to_owned(),
            document: number,
            problem: error.without_snippet().to_string(),
        })?);
    }
    Ok(documents)
}
