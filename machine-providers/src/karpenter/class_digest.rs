//! What a `NodeClass` says about new machines, in a text short enough for an annotation, and whether a machine was made from
//! something else. Knows no kind of `NodeClass`, and does no I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use kube::api::DynamicObject;
use node_lifecycle::hash::fnv1a;
use serde_json::Value;

/// Comes first and says how the parts were made. A text with anything else says nothing about the present `NodeClass`.
const VERSION: &str = "v1";

/// Lists of the status that name the images of new machines: `amis` of an `EC2NodeClass`, `images` of an `AKSNodeClass` and a
/// `GCENodeClass`. Subnets and security groups come and go without a new machine being another one.
const IMAGE_LISTS: [&str; 2] = ["amis", "images"];

/// What such a list calls an image.
const IMAGE_NAMES: [&str; 2] = ["id", "sourceImage"];

/// The part with the hash of each image.
const IMAGES: &str = "images";

/// The part with the hash of the spec.
const SPEC: &str = "spec";

/// The version that new machines of an `AKSNodeClass` run: its images do not depend on it.
const KUBERNETES_VERSION: &str = "kubernetesVersion";

/// What a `NodeClass` says about new machines, part by part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClassDigest {
    /// The version of its API. A spec of another one has other fields.
    api_version: String,
    /// Its uid and how often its spec was edited; `None` where the API server does not count that.
    edition: Option<String>,
    /// Hashes by what they are of.
    parts: BTreeMap<String, String>,
    /// The hash of each image.
    images: BTreeSet<String>,
}

fn hash(text: &str) -> String {
    format!("{:016x}", fnv1a(text.as_bytes()))
}

impl ClassDigest {
    /// Of this `NodeClass`, read at this version of its API.
    pub(super) fn of(api_version: &str, class: &DynamicObject) -> Self {
        let (spec, status) = (&class.data["spec"], &class.data["status"]);
        let parts = [(SPEC, canonical(spec)), (KUBERNETES_VERSION, canonical(&status[KUBERNETES_VERSION]))];
        let parts = parts.into_iter().filter_map(|(part, text)| Some((part.to_owned(), hash(&text?))));
        let edition = class.metadata.uid.as_ref().zip(class.metadata.generation);
        Self {
            api_version: api_version.to_owned(),
            edition: edition.map(|(uid, generation)| format!("{uid}/{generation}")),
            parts: parts.collect(),
            images: IMAGE_LISTS.iter().flat_map(|list| images(&status[*list])).map(hash).collect(),
        }
    }

    /// Whether a machine with this text, and of this image if that is known, was made from something else. What only one of the two
    /// has says nothing: a status is empty while its controller looks for images, and a version that knows more parts may have
    /// written the text.
    pub(super) fn differs_from(&self, text: &str, image: Option<&str>) -> bool {
        let mut words = text.splitn(4, ':');
        let is_comparable = words.next() == Some(VERSION) && words.next() == Some(self.api_version.as_str());
        let (Some(edition), Some(parts), true) = (words.next(), words.next(), is_comparable) else {
            return false;
        };
        // A default that is new in the definition of the NodeClass shows in every spec that is read, and none was edited.
        let is_edited = self.edition.as_deref() != Some(edition);
        let mut pairs = parts.split(',').filter_map(|part| part.split_once('='));
        pairs.any(|(part, then)| match part {
            IMAGES => image.is_some_and(|image| self.has_replaced(image, then)),
            SPEC if !is_edited => false,
            _ => self.parts.get(part).is_some_and(|now| now != then),
        })
    }

    /// Whether another image has taken the place of this one since the `NodeClass` named those in `then`. A shorter list may be one in
    /// which a controller could not find everything for a moment. An image that is not in `then` may only be written in another way.
    fn has_replaced(&self, image: &str, then: &str) -> bool {
        let own = hash(image);
        let then: BTreeSet<&str> = then.split('+').collect();
        then.contains(own.as_str()) && !self.images.contains(&own) && self.images.len() >= then.len()
    }
}

impl fmt::Display for ClassDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let edition = self.edition.as_deref().unwrap_or_default();
        let mut parts: Vec<_> = self.parts.iter().map(|(part, hash)| format!("{part}={hash}")).collect();
        if !self.images.is_empty() {
            let images: Vec<_> = self.images.iter().map(String::as_str).collect();
            parts.push(format!("{IMAGES}={}", images.join("+")));
        }
        write!(f, "{VERSION}:{}:{edition}:{}", self.api_version, parts.join(","))
    }
}

/// The images that such a list names.
fn images(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(image_name)
}

fn image_name(image: &Value) -> Option<&str> {
    IMAGE_NAMES.iter().find_map(|name| image[*name].as_str()).filter(|name| !name.is_empty())
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

    type Images = &'static [&'static str];

    /// Like one of AWS'.
    fn class() -> Value {
        json!({
            "metadata": { "uid": "u-1", "generation": 1 },
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

    fn digest(class: Value) -> ClassDigest {
        ClassDigest::of("v1", &serde_json::from_value(class).unwrap())
    }

    /// Whether a machine of the first, of the image `ami-1`, was made from something else than the second says.
    fn is_other(before: Value, after: Value) -> bool {
        digest(after).differs_from(&digest(before).to_string(), Some("ami-1"))
    }

    /// [`class`] after this change, which is an edit.
    fn edited(change: impl FnOnce(&mut Value)) -> Value {
        let mut class = class();
        class["metadata"]["generation"] = json!(2);
        change(&mut class);
        class
    }

    #[test]
    fn another_spec_image_or_version_is_another_machine() {
        let changes: [fn(&mut Value); 7] = [
            |it| it["spec"]["userData"] = json!("#!/bin/bash"),
            |it| it["spec"]["amiSelectorTerms"][1]["id"] = json!("ami-8"),
            |it| it["spec"]["detailedMonitoring"] = json!(false),
            |it| it["status"]["amis"][0]["id"] = json!("ami-3"),
            |it| it["status"]["amis"] = json!([{ "id": "ami-3" }, { "id": "ami-4" }, { "id": "ami-5" }]),
            |it| it["status"]["amis"][0] = json!({ "sourceImage": "projects/p/images/i" }),
            |it| it["status"]["kubernetesVersion"] = json!("1.36.4"),
        ];
        for (number, change) in changes.into_iter().enumerate() {
            assert!(is_other(class(), edited(change)), "{number}");
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
            assert!(!is_other(class(), edited(change)), "{number}");
        }
    }

    #[test]
    fn only_an_image_that_took_the_place_of_the_machines_own_makes_another_machine() {
        let of = |images: &[&str]| {
            let images: Vec<_> = images.iter().map(|id| json!({ "id": id })).collect();
            let mut class = class();
            class["status"]["amis"] = json!(images);
            digest(class)
        };
        let both: Images = &["arm-1", "x86-1"];
        let cases: [(&str, Images, Images, Option<&str>, bool); 12] = [
            ("replaced", both, &["arm-1", "x86-2"], Some("x86-1"), true),
            ("all replaced, and one more", both, &["arm-2", "gpu-2", "x86-2"], Some("x86-1"), true),
            ("another one replaced", both, &["arm-2", "x86-1"], Some("x86-1"), false),
            ("a new one", both, &["arm-1", "gpu-1", "x86-1"], Some("x86-1"), false),
            ("its own is not found for a moment", both, &["arm-1"], Some("x86-1"), false),
            ("another one is not found for a moment", both, &["x86-1"], Some("x86-1"), false),
            ("none is found for a moment", both, &[], Some("x86-1"), false),
            ("not all are found yet after a replacement", both, &["x86-2"], Some("x86-1"), false),
            ("made while not all were found", &["x86-1"], both, Some("x86-1"), false),
            ("none was found when it was made", &[], both, Some("x86-1"), false),
            ("its image is written in another way", both, &["arm-1", "x86-2"], Some("i/x86-1"), false),
            ("its image is not known", both, &["arm-2", "x86-2"], None, false),
        ];
        for (what, then, now, image, expected) in cases {
            assert_eq!(of(now).differs_from(&of(then).to_string(), image), expected, "{what}");
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
            assert!(!is_other(class(), edited(change)), "{number}");
            assert!(!is_other(edited(change), class()), "{number}: known by now");
        }
    }

    #[test]
    fn a_spec_that_changed_without_an_edit_makes_no_other_machine() {
        let with_default = |uid: Option<&str>, generation: Option<i64>| {
            let mut class = class();
            class["spec"]["newDefault"] = json!(true);
            class["metadata"] = json!({ "uid": uid, "generation": generation });
            class
        };
        for (what, uid, generation, expected) in [
            ("a new default of the definition", Some("u-1"), Some(1), false),
            ("an edit", Some("u-1"), Some(2), true),
            ("another object of the name", Some("u-2"), Some(1), true),
            ("edits are not counted", Some("u-1"), None, true),
        ] {
            assert_eq!(is_other(class(), with_default(uid, generation)), expected, "{what}");
            assert_eq!(is_other(with_default(uid, generation), class()), expected, "{what}, set back");
        }
        let uncounted = |mut class: Value| {
            class["metadata"] = json!({});
            class
        };
        assert!(is_other(uncounted(class()), uncounted(with_default(None, None))), "never counted");
        // What the status says is no matter of edits.
        let mut other_version = class();
        other_version["status"]["kubernetesVersion"] = json!("1.36.4");
        assert!(is_other(class(), other_version));
    }

    #[test]
    fn a_text_of_another_version_or_of_another_api_says_nothing() {
        let current = digest(class());
        assert!(current.differs_from("v1:v1:u-1/0:spec=0", None), "the same with what is known");
        for text in [
            "v2:v1:u-1/0:spec=0",
            "v1:v1beta1:u-1/0:spec=0",
            "v1:v1:u-1/0:other=0",
            "v1:v1:u-1/0:spec",
            "v1:v1:spec=0",
            "v1:v1",
            "v1",
            "",
            "::::",
        ] {
            assert!(!current.differs_from(text, Some("ami-1")), "{text}");
        }
    }

    #[test]
    fn the_text_stays_what_it_is() {
        // Another one would replace every node of the provider when the operator is updated.
        assert_eq!(
            digest(class()).to_string(),
            "v1:v1:u-1/1:kubernetesVersion=7072566862115bf2,spec=60770be03c7ffa0a,images=b3df1ac27735d7d8+b3df1dc27735dcf1"
        );
    }
}
