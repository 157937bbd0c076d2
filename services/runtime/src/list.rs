//! Settings that are lists, with commas between their entries.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, TypedValueParser};

/// Reads an entry of a list as the parser inside does, without the blanks around it: `a, b` says what `a,b` says.
#[derive(Debug, Clone)]
pub struct Trimmed<P>(pub P);

impl<P: TypedValueParser> TypedValueParser for Trimmed<P> {
    type Value = P::Value;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<Self::Value, clap::Error> {
        let value = value.to_str().map_or(value, |text| OsStr::new(text.trim()));
        self.0.parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        self.0.possible_values()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser};

    use super::*;

    #[derive(Parser)]
    struct Lists {
        #[arg(long, value_delimiter = ',', value_parser = Trimmed(NonEmptyStringValueParser::new()))]
        names: Vec<String>,
        #[arg(long, value_delimiter = ',', value_parser = Trimmed(PossibleValuesParser::new(["api", "sink"])))]
        roles: Vec<String>,
    }

    #[test]
    fn blanks_around_an_entry_are_no_part_of_it() {
        for (list, expected) in [
            ("a", Some(&["a"][..])),
            ("a,b", Some(&["a", "b"][..])),
            ("a, b", Some(&["a", "b"][..])),
            (" a ,\tb\n", Some(&["a", "b"][..])),
            ("a b", Some(&["a b"][..])),
            ("a, ", None),
            ("", None),
        ] {
            let found = Lists::try_parse_from(["x", "--names", list]).ok().map(|lists| lists.names);
            let expected = expected.map(|names| names.iter().map(ToString::to_string).collect::<Vec<_>>());
            assert_eq!(found, expected, "{list:?}");
        }
    }

    #[test]
    fn what_an_entry_may_be_is_known_and_told() {
        let lists = Lists::try_parse_from(["x", "--roles", "api, sink"]).unwrap();
        assert_eq!(lists.roles, ["api", "sink"]);
        let wrong = Lists::try_parse_from(["x", "--roles", "api, all"]).map(|_| ()).unwrap_err().to_string();
        assert!(wrong.contains("[possible values: api, sink]"), "{wrong}");
    }
}
