//! `docs/reference/api.md`: every kind with its fields, from the definitions.

use anyhow::Context as _;
use serde_json::Value;

use super::fields::{self, Field};
use super::markdown::{code, codes, head, prose, row, table};

/// The page. `definitions` is the list of them as JSON.
pub(super) fn page(definitions: &Value) -> anyhow::Result<String> {
    let mut text = head("API", "the types in `shared-crds/src/v1alpha1`");
    text.push_str(
        "Every kind, as the API server holds it: `kubectl explain` shows the same. `[]` is an item of a list, `.*` a value of a map.\n\
         The API is alpha: see [Support](../../CONTRIBUTING.md#support). Who writes which field of a `NodePool`:\n\
         [README](../../README.md#who-owns-which-field).\n",
    );
    for definition in definitions.as_array().context("the definitions are no list")? {
        text.push_str(&kind(definition)?);
    }
    Ok(text)
}

fn kind(definition: &Value) -> anyhow::Result<String> {
    let at = |path: &str| definition.pointer(path);
    let word = |path: &str| at(path).and_then(Value::as_str).unwrap_or_default();
    let words = |path: &str| {
        codes(at(path).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str))
    };
    let name = word("/spec/names/kind");
    let mut text = format!("\n## {name}\n");
    for version in at("/spec/versions").and_then(Value::as_array).context("a definition has no versions")? {
        let schema = version.pointer("/schema/openAPIV3Schema").context("a version has no schema")?;
        let description = schema.get("description").and_then(Value::as_str).unwrap_or_default();
        let api_version = format!(
            "{}/{}",
            word("/spec/group"),
            version.get("name").and_then(Value::as_str).unwrap_or_default()
        );
        text.push_str(&format!("\n{}\n\n", prose(description)));
        text.push_str(&table(&["", ""]));
        for (what, value) in [
            ("`apiVersion`", code(&api_version)),
            ("scope", word("/spec/scope").to_owned()),
            (
                "names for `kubectl`",
                format!("{}, {}", code(word("/spec/names/plural")), words("/spec/names/shortNames")),
            ),
            ("categories", words("/spec/names/categories")),
            ("subresources", subresources(version)),
        ] {
            text.push_str(&row(&[what, &value]));
        }
        text.push_str(&columns(name, version));
        let all = fields::below("", schema);
        let of = |root: &str| {
            let is_in = |path: &str| path == root || path.starts_with(&format!("{root}."));
            all.iter().filter(|field| is_in(&field.path)).map(line).collect::<String>()
        };
        for root in ["spec", "status"] {
            text.push_str(&format!("\n### {root} of a {name}\n\n"));
            text.push_str(&table(&["field", "type", "default", "checked by the API server", "description"]));
            text.push_str(&of(root));
        }
    }
    Ok(text)
}

fn line(field: &Field) -> String {
    let Field { path, type_, default, checks, description } = field;
    row(&[&code(path), type_, default, checks, description])
}

fn subresources(version: &Value) -> String {
    let Some(all) = version.get("subresources").and_then(Value::as_object) else { return "none".to_owned() };
    let describe = |(name, paths): (&String, &Value)| {
        let paths =
            paths.as_object().into_iter().flatten().filter_map(|(key, path)| Some((key, path.as_str()?)));
        let paths: Vec<String> = paths.map(|(key, path)| format!("{key} {}", code(path))).collect();
        if paths.is_empty() { code(name) } else { format!("{} ({})", code(name), paths.join(", ")) }
    };
    all.iter().map(describe).collect::<Vec<_>>().join(", ")
}

/// What `kubectl get` shows.
fn columns(kind: &str, version: &Value) -> String {
    let mut text = format!("\n### Columns of a {kind}\n\n");
    text.push_str(&table(&["column of `kubectl get`", "field", "description"]));
    for column in version.get("additionalPrinterColumns").and_then(Value::as_array).into_iter().flatten() {
        let word = |key: &str| column.get(key).and_then(Value::as_str).unwrap_or_default();
        let is_wide = column.get("priority").and_then(Value::as_i64).is_some_and(|priority| priority > 0);
        let name = if is_wide { format!("{} (`-o wide`)", word("name")) } else { word("name").to_owned() };
        text.push_str(&row(&[&name, &code(word("jsonPath")), &prose(word("description"))]));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_names_its_columns_and_its_fields() {
        let definitions = serde_json::to_value(shared_crds::all().unwrap()).unwrap();
        let text = page(&definitions).unwrap();
        for line in [
            "## NodePool",
            "## NodePoolAutoscaler",
            "| `apiVersion` | `tandem.dev/v1alpha1` |",
            "| names for `kubectl` | `nodepools`, `npool` |",
            "| Desired | `.spec.replicas` | Nodes asked for |",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
        for start in [
            "| `spec.disruption.budgets[].effect` | string | `\"Limit\"` |",
            "| `status.conditions[].reason` |",
        ] {
            assert!(text.lines().any(|found| found.starts_with(start)), "{start} is missing in\n{text}");
        }
    }

    #[test]
    fn every_field_has_a_description() {
        for definition in serde_json::to_value(shared_crds::all().unwrap()).unwrap().as_array().unwrap() {
            let schema = definition.pointer("/spec/versions/0/schema/openAPIV3Schema").unwrap();
            for field in fields::below("", schema) {
                assert!(!field.description.is_empty(), "{}", field.path);
            }
        }
    }
}
