//! Enums whose values have names: each name is written once, in a table.

/// An enum of named values: `Fifo = "fifo"`, or `Chase = "random-chase" | "chase"` if a second name is also read. The
/// table gives the serialised form, `ALL`, `name`, `from_name`, `Display` and `FromStr`.
macro_rules! words {
    (
        $(#[$meta:meta])*
        pub enum $enum:ident: $what:literal {
            $($(#[$value_meta:meta])* $value:ident = $name:tt $(| $alias:tt)?,)+
        }
    ) => {
        $(#[$meta])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash,
            serde::Serialize, serde::Deserialize, schemars::JsonSchema,
        )]
        pub enum $enum {
            $($(#[$value_meta])* #[serde(rename = $name $(, alias = $alias)?)] $value,)+
        }

        impl $enum {
            /// Every value, in the order of the table.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$value),+];

            /// The name in plans, flags and results.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $name,)+
                }
            }

            /// The value of that name.
            pub fn from_name(name: &str) -> Option<Self> {
                match name {
                    $($name $(| $alias)? => Some(Self::$value),)+
                    _ => None,
                }
            }
        }

        impl std::fmt::Display for $enum {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl std::str::FromStr for $enum {
            type Err = String;
            fn from_str(text: &str) -> Result<Self, String> {
                Self::from_name(text).ok_or_else(|| crate::words::not_one_of(text, $what, &[$($name),+]))
            }
        }
    };
}
pub(crate) use words;

/// `` `late` is not a profile; choose light, functions or graph``.
pub(crate) fn not_one_of(text: &str, what: &str, names: &[&str]) -> String {
    let choice = match names {
        [all @ .., last] if !all.is_empty() => format!("{} or {last}", all.join(", ")),
        names => names.concat(),
    };
    format!("`{text}` is not {what}; choose {choice}")
}

#[cfg(test)]
mod tests {
    use crate::plan::MemoryAccess;
    use whylate_testing::says;

    #[test]
    fn a_value_has_one_name_everywhere_and_may_be_read_by_another() {
        for access in MemoryAccess::ALL {
            assert_eq!(serde_json::to_value(access).unwrap(), access.name());
            assert_eq!(access.name().parse(), Ok(access));
        }
        assert_eq!(serde_json::from_str::<MemoryAccess>("\"chase\"").unwrap(), MemoryAccess::Chase);
        let error = "raed".parse::<MemoryAccess>().unwrap_err();
        assert!(says("choose-read-write-copy", &error), "{error}");
    }
}
