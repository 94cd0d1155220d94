//! What a `NodeClass` says about new machines, in a text short enough for an annotation, and whether a machine was made from
//! something else. Knows no kind of `NodeClass`, and does no I/O.

use std::collections::BTreeMap;
use std::fmt;

use node_lifecycle::hash::fnv1a;
use serde_json::Value;

/// Comes first and says how the parts were made. A text with anything else says nothing about the present `NodeClass`.
const VERSION: &str = "v1";

/// Lists of the status that name the images of new machines: `amis` of an `EC2NodeClass`, `images` of an `AKSNodeClass` and a
/// `GCENodeClass`. Subnets and security groups come and go without a new machine being another one.
const IMAGES: [&str; 2] = ["amis", "images"];

/// What such a list calls an image.
const IMAGE_NAMES: [&str; 2] = ["id", "sourceImage"];

/// The version that new machines of an `AKSNodeClass` run: its images do not depend on it.
const KUBERNETES_VERSION: &str = "kubernetesVersion";

/// What a `NodeClass` says about new machines, part by part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClassDigest {
    /// The version of its API. A spec of another one has other fields.
    api_version: String,
    /// Hashes by what they are of.
    parts: BTreeMap<String, String>,
}

impl ClassDigest {
    /// Of the `NodeClass` with this content, read at this version of its API.
    pub(super) fn of(api_version: &str, class: &Value) -> Self {
        let status = &class["status"];
        let images = IMAGES.map(|field| (field, images(&status[field])));
        let spec = canonical(&class["spec"]);
        let version = canonical(&status[KUBERNETES_VERSION]);
        let parts = [("spec", spec), (KUBERNETES_VERSION, version)].into_iter().chain(images);
        let hash = |text: String| format!("{:016x}", fnv1a(text.as_bytes()));
        let parts = parts.filter_map(|(part, text)| Some((part.to_owned(), hash(text?))));
        Self { api_version: api_version.to_owned(), parts: parts.collect() }
    }

    /// Whether a machine with this text was made from something else. What only one of the two has says nothing: a status is
    /// empty while its controller looks for images, and a version that knows more parts may have written the text.
    pub(super) fn differs_from(&self, text: &str) -> bool {
        let mut words = text.splitn(3, ':');
        let is_comparable = words.next() == Some(VERSION) && words.next() == Some(self.api_version.as_str());
        let parts = words.next().filter(|_| is_comparable).into_iter().flat_map(|parts| parts.split(','));
        let mut pairs = parts.filter_map(|part| part.split_once('='));
        pairs.any(|(part, hash)| self.parts.get(part).is_some_and(|own| own != hash))
    }
}

impl fmt::Display for ClassDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<_> = self.parts.iter().map(|(part, hash)| format!("{part}={hash}")).collect();
        write!(f, "{VERSION}:{}:{}", self.api_version, parts.join(","))
    }
}

/// The images of such a list; `None` when it names none.
fn images(list: &Value) -> Option<String> {
    let name = |image: &Value| IMAGE_NAMES.iter().find_map(|name| canonical(&image[*name]));
    let mut names: Vec<String> = list.as_array()?.iter().filter_map(name).collect();
    names.sort();
    names.dedup();
    (!names.is_empty()).then(|| names.join(","))
}

/// The value as a text that is the same for the same machine: neither the order of a list nor what is empty makes a difference, as in
/// Karpenter's own hashes: <https://pkg.go.dev/sigs.k8s.io/karpenter/pkg/apis/v1#NodePool.Hash>. `None` when nothing is left.
fn canonical(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::Bool(_) | Value::Number(_) | Value::String(_) => Some(value.to_string()),
        Value::Array(all) => {
            let mut all: Vec<String> = all.iter().filter_map(canonical).collect();
            all.sort();
            (!all.is_empty()).then(|| format!("[{}]", all.join(",")))
        }
        Value::Object(all) => {
            let field = |(name, value): (&String, &Value)| {
                Some(format!("{}:{}", Value::from(name.as_str()), canonical(value)?))
            };
            let mut all: Vec<String> = all.iter().filter_map(field).collect();
            all.sort();
            (!all.is_empty()).then(|| format!("{{{}}}", all.join(",")))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Like one of AWS'.
    fn class() -> Value {
        json!({
            "spec": {
                "amiSelectorTerms": [{ "alias": "al2023@latest" }, { "id": "ami-9" }],
                "userData": "#!/bin/sh", "tags": {},
            },
            "status": {
                "amis": [{ "id": "ami-1", "name": "one" }, { "id": "ami-2", "name": "two" }],
                "subnets": [{ "id": "subnet-1", "zone": "a" }], "securityGroups": [{ "id": "sg-1" }],
                "kubernetesVersion": "1.36.3",
            },
        })
    }

    /// Whether a machine of [`class`] was made from something else than the class says after this change.
    fn is_other(change: impl FnOnce(&mut Value)) -> bool {
        let text = ClassDigest::of("v1", &class()).to_string();
        let mut after = class();
        change(&mut after);
        ClassDigest::of("v1", &after).differs_from(&text)
    }

    #[test]
    fn another_spec_image_or_version_is_another_machine() {
        let changes: [fn(&mut Value); 7] = [
            |it| it["spec"]["userData"] = json!("#!/bin/bash"),
            |it| it["spec"]["amiSelectorTerms"][1]["id"] = json!("ami-8"),
            |it| it["spec"]["detailedMonitoring"] = json!(false),
            |it| it["status"]["amis"][0]["id"] = json!("ami-3"),
            |it| it["status"]["amis"].as_array_mut().unwrap().truncate(1),
            |it| it["status"]["amis"][1] = json!({ "sourceImage": "projects/p/images/i" }),
            |it| it["status"]["kubernetesVersion"] = json!("1.36.4"),
        ];
        for (number, change) in changes.into_iter().enumerate() {
            assert!(is_other(change), "{number}");
        }
    }

    #[test]
    fn order_what_is_empty_and_what_only_places_a_machine_make_no_other() {
        let changes: [fn(&mut Value); 8] = [
            |_| {},
            |it| it["spec"]["amiSelectorTerms"].as_array_mut().unwrap().reverse(),
            |it| it["spec"]["tags"] = json!(null),
            |it| it["status"]["amis"].as_array_mut().unwrap().reverse(),
            |it| it["status"]["amis"][0]["name"] = json!("renamed"),
            |it| it["status"]["subnets"] = json!([]),
            |it| it["status"]["securityGroups"][0]["id"] = json!("sg-2"),
            |it| it["metadata"] = json!({ "generation": 7, "labels": { "a": "b" } }),
        ];
        for (number, change) in changes.into_iter().enumerate() {
            assert!(!is_other(change), "{number}");
        }
    }

    #[test]
    fn a_status_that_names_no_image_says_nothing_about_images() {
        let changes: [fn(&mut Value); 3] = [
            |it| it["status"]["amis"] = json!([]),
            |it| it["status"] = json!(null),
            // A controller that calls its images in another way.
            |it| it["status"]["amis"] = json!(["ami-3"]),
        ];
        for (number, change) in changes.into_iter().enumerate() {
            assert!(!is_other(change), "{number}");
            let mut before = class();
            change(&mut before);
            let text = ClassDigest::of("v1", &before).to_string();
            assert!(!ClassDigest::of("v1", &class()).differs_from(&text), "{number}: known by now");
        }
    }

    #[test]
    fn a_text_of_another_version_or_of_another_api_says_nothing() {
        let current = ClassDigest::of("v1", &class());
        assert!(current.differs_from("v1:v1:spec=0"), "the same with what is known");
        for text in
            ["v2:v1:spec=0", "v1:v1beta1:spec=0", "v1:v1:other=0", "v1:v1:spec", "v1:v1", "v1", "", ":::"]
        {
            assert!(!current.differs_from(text), "{text}");
        }
    }

    #[test]
    fn the_text_stays_what_it_is() {
        // Another one would replace every node of the provider when the operator is updated.
        let text = ClassDigest::of("v1", &class()).to_string();
        assert_eq!(
            text,
            "v1:v1:amis=6c9ea51c3c35eb54,kubernetesVersion=7072566862115bf2,spec=60770be03c7ffa0a"
        );
    }
}
