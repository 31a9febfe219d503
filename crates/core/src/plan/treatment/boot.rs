//! The treatment of the boot: the kernel and its command line.

use super::{Flag, KeyError, Words};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Requires words of the kernel command line and changes nothing: cells with this treatment run only if the machine
/// was booted with these words. `whylate fix --campaign` reboots with the words.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-examples" = "\
Examples:
  whylate treat apply boot 'isolcpus=1 nohz_full=1'     checks that this boot has these words
To test it, with a reboot for each repeat: whylate fix --campaign DIR --boot 'isolcpus=1'"))]
pub struct BootPlan {
    /// Words of the kernel command line: `isolcpus=1 nohz_full=1`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(extend("x-flag" = Flag::positional("words")))]
    pub append: String,
    /// Version of the kernel, as `uname -r` prints it [default: any].
    pub kernel: Option<String>,
}

/// The start of the word that names the kernel in [`BootPlan::of`].
const KERNEL: &str = "kernel=";
/// The text of all words; boot loaders keep it in blocks of 1024 bytes.
const LENGTH_MAX: usize = 400;

impl BootPlan {
    /// From one text: `kernel=6.12.9-rt isolcpus=1`, where `kernel=` is not a word of the command line.
    pub fn of(text: &str) -> Result<Self, KeyError> {
        let (named, words): (Vec<&str>, Vec<&str>) =
            text.split_whitespace().partition(|word| word.starts_with(KERNEL));
        let kernel = named.last().map(|word| word.trim_start_matches(KERNEL).to_owned());
        let plan = Self { append: words.join(" "), kernel };
        // The flag is `--boot`, and not the key of plans.
        plan.check().map_err(|error| KeyError { key: "boot", ..error }).map(|()| plan)
    }

    /// The words, in their order.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        self.append.split_whitespace()
    }

    /// A name for it in plans, where `/` and `+` have a meaning of their own.
    pub fn name(&self) -> String {
        let kernel = self.kernel.iter().map(|kernel| format!("{KERNEL}{kernel}"));
        let words: Vec<String> = kernel.chain(self.words().map(str::to_owned)).collect();
        words.join(" ").replace(['/', '+'], "_")
    }
}

impl Words for BootPlan {
    fn check(&self) -> Result<(), KeyError> {
        if self.append.trim().is_empty() && self.kernel.is_none() {
            return Err(KeyError::new("append", "is empty; give words such as `isolcpus=1`"));
        }
        if self.append.len() > LENGTH_MAX {
            return Err(KeyError::new("append", format!("is longer than {LENGTH_MAX} characters")));
        }
        // Characters that boot loaders and shells take as they are.
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "=,.-_:/+@%".contains(c);
        let all = self.words().chain(self.kernel.as_deref());
        match all.into_iter().find(|word| *word == "--" || !word.chars().all(is_plain)) {
            Some(word) => {
                let message = format!("`{word}` has characters that boot loaders do not pass on unchanged");
                Err(KeyError::new("append", message))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_words_and_a_kernel() {
        let plan = BootPlan::of("kernel=6.12.9-rt  isolcpus=managed_irq,1 nohz_full=1").unwrap();
        assert_eq!(plan.kernel.as_deref(), Some("6.12.9-rt"));
        assert_eq!(plan.append, "isolcpus=managed_irq,1 nohz_full=1");
        assert_eq!(plan.name(), "kernel=6.12.9-rt isolcpus=managed_irq,1 nohz_full=1");
        assert_eq!(BootPlan::of("root=/dev/sda1").unwrap().name(), "root=_dev_sda1");
        for wrong in ["", " ", "a=$(reboot)", "a; b", "a -- b", "a='b'", "a\\b", &"a".repeat(401)] {
            let error = BootPlan::of(wrong).unwrap_err().to_string();
            assert!(error.starts_with("--boot: "), "{error}");
        }
    }
}
