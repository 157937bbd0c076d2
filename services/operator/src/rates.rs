//! How much of an AWS account's request rates this operator may use: AWS's defaults, unless it is told otherwise, because
//! AWS raises an account's limits on request and several operators may share one account.

use cloud::{Family, Rate, Rates};

/// Rates of some families in place of the defaults.
pub(crate) fn rates(given: &[(Family, Rate)]) -> Rates {
    given.iter().fold(Rates::default(), |rates, (family, rate)| rates.with(*family, *rate))
}

/// A rate such as `launch=2/5`: two requests a second, five at once.
pub(crate) fn rate(text: &str) -> Result<(Family, Rate), String> {
    let wrong = || {
        format!(
            "{text:?} is not a rate such as launch=2/5 (two requests a second, five at once) of read, write, launch or dns"
        )
    };
    let (family, rate) = text.split_once('=').ok_or_else(wrong)?;
    let family = match family {
        "read" => Family::Read,
        "write" => Family::Write,
        "launch" => Family::Launch,
        "dns" => Family::Dns,
        _ => return Err(wrong()),
    };
    let (per_second, burst) = rate.split_once('/').ok_or_else(wrong)?;
    let per_second: f64 = per_second.parse().map_err(|_| wrong())?;
    let burst: u32 = burst.parse().map_err(|_| wrong())?;
    if !per_second.is_finite() || per_second < 0.01 || burst == 0 {
        return Err(format!("{text:?} would send next to nothing: at least 0.01 a second, and 1 at once"));
    }
    Ok((family, Rate::new(burst, per_second)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_told_by_family() {
        let given: Vec<_> = ["launch=20/100", "dns=0.5/1"].map(|text| rate(text).unwrap()).into();
        let rates = rates(&given);
        assert_eq!((rates.launch, rates.dns), (Rate::new(100, 20.0), Rate::new(1, 0.5)));
        assert_eq!((rates.read, rates.write), (Rates::default().read, Rates::default().write));
    }

    #[test]
    fn what_is_no_rate_is_refused() {
        for text in [
            "",
            "launch",
            "launch=2",
            "start=2/5",
            "read=a/5",
            "read=2/b",
            "read=2/-1",
            "dns=0/5",
            "dns=2/0",
            "dns=NaN/5",
        ] {
            assert!(rate(text).is_err(), "{text}");
        }
    }
}
