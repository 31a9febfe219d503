//! How a key of a probe, load or treatment is given on the command line, if its name and its sentence in plans do not
//! say it.
//!
//! A plan type says so next to the key: `#[schemars(extend("x-flag" = Flag::named("share")))]`. The end of a kind's
//! help is an attribute of the type: `#[schemars(extend("x-examples" = "…"))]`.

use schemars::Schema;
use schemars::transform::transform_subschemas;
use serde::{Deserialize, Serialize};

/// The word of a schema that holds a [`Flag`].
pub const FLAG: &str = "x-flag";
/// The word of a schema that holds what the help of a kind ends with.
pub const EXAMPLES: &str = "x-examples";

/// A key as a flag.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flag {
    /// Its name; by default the key's.
    pub name: Option<String>,
    /// Whether it is given without a name, by its position.
    pub is_positional: bool,
    /// Whether its value may begin with a hyphen.
    pub takes_hyphens: bool,
    /// Its default; otherwise that of the plan.
    pub default: Option<String>,
    /// What the help says; by default the sentence of the key.
    pub help: Option<String>,
    /// The word that sets the key in a list which several keys share, each with a word of its own.
    pub word: Option<String>,
}

impl Flag {
    /// A flag with another name than its key.
    pub(super) fn named(name: &str) -> Self {
        Self { name: Some(name.to_owned()), ..Self::default() }
    }

    /// Given by its position.
    pub(super) fn positional(name: &str) -> Self {
        Self { is_positional: true, ..Self::named(name) }
    }

    /// Given by its position; any text.
    pub(super) fn text(name: &str) -> Self {
        Self::positional(name).hyphens()
    }

    /// With a value that may begin with a hyphen.
    pub(super) fn hyphens(self) -> Self {
        Self { takes_hyphens: true, ..self }
    }

    /// As in a plan, except for its default.
    pub(super) fn by_default(default: &str) -> Self {
        Self { default: Some(default.to_owned()), ..Self::default() }
    }

    /// A word of the list `name`.
    pub(super) fn word(name: &str, word: &str) -> Self {
        Self { word: Some(word.to_owned()), ..Self::named(name) }
    }

    /// With its own help.
    pub(super) fn help(self, help: &str) -> Self {
        Self { help: Some(help.to_owned()), ..self }
    }

    /// Switches a key off that is on by default.
    pub(super) fn off(name: &str, help: &str) -> Self {
        Self::named(name).help(help)
    }

    /// The flag for the key `hold_cpu_dma_latency`.
    pub(super) fn idle_states() -> Self {
        Self::off(
            "no-cpu-dma-latency",
            "Does not set /dev/cpu_dma_latency to 0: deep idle states remain allowed",
        )
    }
}

/// Takes the words of the command line out of a schema.
pub(crate) fn without_flags(schema: &mut Schema) {
    schema.remove(FLAG);
    schema.remove(EXAMPLES);
    transform_subschemas(&mut without_flags, schema);
}
