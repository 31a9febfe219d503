//! The tables of probes, loads and treatments, and the errors in a plan of one kind.

use std::fmt;

/// What is wrong with one key of a `[[probe]]`, `[[load]]` or `[[treatment]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyError {
    /// The key; empty for the whole section.
    pub key: &'static str,
    /// What is wrong and what would be right.
    pub message: String,
}

impl KeyError {
    pub(super) fn new(key: &'static str, message: impl Into<String>) -> Self {
        Self { key, message: message.into() }
    }
}

impl fmt::Display for KeyError {
    /// As flags are named: `--samples: must be above 0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.key {
            "" => f.write_str(&self.message),
            key => write!(f, "--{}: {}", key.replace('_', "-"), self.message),
        }
    }
}

impl std::error::Error for KeyError {}

/// What every kind of load and treatment says of itself in addition to its keys.
pub trait Words {
    /// Refuses values that have the right type but make no sense.
    fn check(&self) -> Result<(), KeyError> {
        Ok(())
    }
}

/// A family of kinds: one row for each, with its meaning, its name in plans and the type of its keys. The rows give
/// the names, the decoding, the schema, the help and the suggestions, so every listed kind can be decoded.
///
/// `trait` is the trait through which the rest of this crate treats all kinds of the family alike. With `facts`, each
/// type has a function of that name, which can also be called by the kind's name.
macro_rules! kinds {
    (
        $(#[$meta:meta])*
        pub enum $enum:ident: $trait:ident, facts $facts:ident {
            $(#[doc = $meaning:literal] $name:tt => $kind:ident($plan:ty),)+
        }
    ) => {
        crate::plan::kinds::kinds! {
            $(#[$meta])*
            pub enum $enum: $trait {
                $(#[doc = $meaning] $name => $kind($plan),)+
            }
        }

        /// What holds for a series of that kind; `None` for a kind that is not in the table.
        fn facts_of(kind: &str, series: Option<&str>) -> Option<$facts> {
            match kind {
                $($name => {
                    let facts = <$plan as $trait>::facts(series);
                    Some($facts { name: $name, meaning: $meaning.trim_ascii(), ..facts })
                })+
                _ => None,
            }
        }
    };
    (
        $(#[$meta:meta])*
        pub enum $enum:ident: $trait:ident {
            $(#[doc = $meaning:literal] $name:tt => $kind:ident($plan:ty),)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(tag = "kind")]
        pub enum $enum {
            $(#[doc = $meaning] #[serde(rename = $name)] $kind($plan),)+
        }

        impl $enum {
            /// The names of all kinds.
            pub const KINDS: [&'static str; [$($name),+].len()] = [$($name),+];

            /// Its name among [`Self::KINDS`].
            pub const fn kind(&self) -> &'static str {
                match self {
                    $(Self::$kind(_) => $name,)+
                }
            }

            /// What each kind is for, in one line, in the order of [`Self::KINDS`].
            pub const MEANINGS: [&'static str; Self::KINDS.len()] = [$($meaning.trim_ascii()),+];

            /// The JSON Schema of the keys of a kind, `kind` and `name` left out; `None` for no kind.
            pub fn key_schema(kind: &str) -> Option<serde_json::Value> {
                match kind {
                    $($name => Some(schemars::schema_for!($plan).to_value()),)+
                    _ => None,
                }
            }

            /// What all kinds have in common.
            pub fn words(&self) -> &dyn $trait {
                match self {
                    $(Self::$kind(plan) => plan,)+
                }
            }

            /// Decodes the keys of a section without `kind` and `name`, which were taken out before.
            pub(in crate::plan) fn decode<'a>(
                document: &crate::plan::document::Document<'a>,
                kind: &str,
                value: toml::Spanned<toml::de::DeValue<'a>>,
                key: &str,
            ) -> Result<Self, crate::plan::PlanError> {
                match kind {
                    $($name => document.value(value, key, &["kind", "name"]).map(Self::$kind),)+
                    _ => Err(document.unknown_kind(kind, value.span(), key, &Self::KINDS)),
                }
            }
        }
    };
}
pub(super) use kinds;
