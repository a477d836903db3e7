//! Prices.

use super::{Value, Written};

/// A price: a decimal number, 0 or more.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Price(f64);

impl Price {
    /// The price in its currency.
    pub fn amount(self) -> f64 {
        self.0
    }
}

impl Value for Price {
    const KIND: &'static str = "price";
    const EXAMPLE: &'static str = "a price such as 0.005";

    fn read(text: &str) -> Result<Self, String> {
        let price: f64 = text.trim().parse().map_err(|_| "not a number".to_owned())?;
        if !price.is_finite() {
            return Err("not a number".to_owned());
        }
        if price.is_sign_negative() && price != 0.0 {
            return Err("negative".to_owned());
        }
        Ok(Price(price.abs()))
    }

    fn write(&self) -> Written {
        Written::Decimal(self.0.to_string())
    }
}

/// The name of a currency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Currency(pub String);

impl Value for Currency {
    const KIND: &'static str = "currency";
    const EXAMPLE: &'static str = "a currency such as USD";

    fn read(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let is_text = |character: char| !character.is_control() && !character.is_whitespace();
        match text.chars().count() {
            1..=8 if text.chars().all(is_text) => Ok(Currency(text.to_owned())),
            _ => Err("not 1 to 8 characters without spaces".to_owned()),
        }
    }

    fn write(&self) -> Written {
        Written::Text(self.0.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_numbers_from_zero_on() {
        for (text, amount, written) in [
            ("0.005", 0.005, "0.005"),
            (" 3 ", 3.0, "3"),
            ("0", 0.0, "0"),
            ("-0.0", 0.0, "0"),
            ("4e-4", 0.0004, "0.0004"),
        ] {
            let price = Price::read(text).unwrap();
            assert_eq!(price.amount(), amount, "{text}");
            assert_eq!(price.write(), Written::Decimal(written.to_owned()));
        }
        for text in [
            "",
            "-1",
            "-0.0001",
            "nan",
            "-NaN",
            "inf",
            "1,5",
            "0.005 USD",
            "1e999",
        ] {
            assert!(Price::read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn currencies_are_short_words() {
        assert_eq!(Currency::read(" € ").unwrap().0, "€");
        for text in ["", "US Dollars", "U\nSD", "123456789"] {
            assert!(Currency::read(text).is_err(), "{text:?}");
        }
    }
}
