//! Frequencies as texts: `2.4GHz`.

use crate::units::{Hz, UnitError, as_text, scale, split_number};
use std::str::FromStr;

const EXAMPLE: &str = "2.4GHz";

impl FromStr for Hz {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let (number, unit) = split_number(text.trim()).ok_or_else(|| UnitError::NotANumber {
            text: text.to_owned(),
            what: "a frequency",
            example: EXAMPLE,
        })?;
        let factor = match unit.trim() {
            "Hz" => 1,
            "kHz" => 1_000,
            "MHz" => 1_000_000,
            "GHz" => 1_000_000_000,
            "" => return Err(UnitError::MissingUnit { text: text.to_owned(), example: EXAMPLE }),
            unit => {
                return Err(UnitError::UnknownUnit {
                    text: text.to_owned(),
                    unit: unit.to_owned(),
                    known: "Hz, kHz, MHz, GHz",
                });
            }
        };
        let hertz = scale(number, factor).and_then(|hertz| u64::try_from(hertz).ok());
        hertz.map(Self).ok_or_else(|| UnitError::TooLarge { text: text.to_owned() })
    }
}

as_text!(Hz, "2.4GHz", "A frequency with its unit: Hz, kHz, MHz, GHz");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequencies_carry_their_unit() {
        for (text, hertz) in [("2.4GHz", 2_400_000_000), ("800 MHz", 800_000_000), ("5Hz", 5)] {
            assert_eq!(text.parse::<Hz>().unwrap(), Hz(hertz));
            assert_eq!(Hz(hertz).to_string().parse::<Hz>().unwrap(), Hz(hertz));
        }
        assert!(matches!("2400".parse::<Hz>(), Err(UnitError::MissingUnit { .. })));
        assert!(matches!("2 THz".parse::<Hz>(), Err(UnitError::UnknownUnit { .. })));
        assert!(matches!("fast".parse::<Hz>(), Err(UnitError::NotANumber { .. })));
        assert!(matches!("99999999999999GHz".parse::<Hz>(), Err(UnitError::TooLarge { .. })));
    }
}
