//! Sizes, rates and times as people write and read them. JSON has plain numbers instead.

use std::fmt::Write;

use forebay_engine::Nanos;

/// Reads `64G`, `1.5GiB`, `100M`, `4096`: binary units, bytes without one.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let split = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        "t" | "tb" | "tib" => 1 << 40,
        _ => {
            return Err(format!(
                "`{unit}` is no unit of size: use K, M, G or T (powers of 1024)"
            ));
        }
    };
    let wrong = || format!("`{text}` is not a size such as 512M, 64G or 1.5T");
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor).ok_or_else(wrong);
    }
    let value: f64 = number.parse().map_err(|_| wrong())?;
    let bytes = value * factor as f64;
    if !bytes.is_finite() || bytes < 0.0 || bytes >= u64::MAX as f64 {
        return Err(wrong());
    }
    Ok(bytes as u64)
}

/// Reads a size that must have a unit, where a bare number is more likely a slip than a number of
/// bytes.
pub(crate) fn parse_size_with_unit(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text)?;
    let number = text.trim();
    if bytes > 0 && !number.ends_with(|c: char| c.is_ascii_alphabetic()) {
        return Err(format!(
            "`{number}` has no unit: write {number}K, {number}M or {number}G, or {number}B for bytes"
        ));
    }
    Ok(bytes)
}

/// A size with its unit as it was written.
#[derive(Clone, Debug)]
pub(crate) struct WrittenSize {
    pub(crate) bytes: u64,
    text: String,
}

impl WrittenSize {
    /// Says how it was read, if its unit has another meaning elsewhere (1 GB of 10^9 bytes).
    pub(crate) fn reading(&self) -> Option<String> {
        let unit = self
            .text
            .trim_start_matches(|c: char| !c.is_ascii_alphabetic());
        let unit = unit.to_ascii_lowercase();
        matches!(unit.as_str(), "kb" | "mb" | "gb" | "tb").then(|| {
            let WrittenSize { bytes, text } = self;
            format!(
                "{text} is read as {}, {bytes} bytes: units are powers of 1024",
                size(*bytes)
            )
        })
    }
}

impl std::str::FromStr for WrittenSize {
    type Err = String;

    fn from_str(text: &str) -> Result<WrittenSize, String> {
        Ok(WrittenSize {
            bytes: parse_size_with_unit(text)?,
            text: text.trim().to_owned(),
        })
    }
}

/// Reads `500us`, `20ms`, `1s`.
pub(crate) fn parse_time(text: &str) -> Result<Nanos, String> {
    let split = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor = match unit.trim() {
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return Err(format!("`{text}` is not a time such as 500us, 20ms or 1s")),
    };
    let number: Option<u64> = number.parse().ok();
    let nanos = number.and_then(|number| number.checked_mul(factor));
    nanos
        .map(Nanos)
        .ok_or_else(|| format!("`{text}` is not a time such as 500us, 20ms or 1s"))
}

/// A size beyond which something happens, or `off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cutoff(pub(crate) Option<u64>);

impl std::str::FromStr for Cutoff {
    type Err = String;

    fn from_str(text: &str) -> Result<Cutoff, String> {
        match text {
            "off" => Ok(Cutoff(None)),
            _ => {
                let bytes = parse_size_with_unit(text)?;
                Ok(Cutoff(Some(bytes).filter(|bytes| *bytes > 0)))
            }
        }
    }
}

/// A time beyond which something happens, or `off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit(pub(crate) Option<Nanos>);

impl std::str::FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Limit, String> {
        match text {
            "off" | "0" => Ok(Limit(None)),
            _ => parse_time(text).map(|time| Limit(Some(time))),
        }
    }
}

/// The least that a write budget can be: with less the cache would take nothing in.
const LEAST_BUDGET_BYTES: u64 = 1 << 20;

/// The most that may be written in a day, or `off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budget(pub(crate) Option<u64>);

impl std::str::FromStr for Budget {
    type Err = String;

    fn from_str(text: &str) -> Result<Budget, String> {
        match text.parse::<Cutoff>()? {
            Cutoff(Some(bytes)) if bytes < LEAST_BUDGET_BYTES => Err(format!(
                "{} a day is too little to cache with: give at least 1M (units K, M, G, T), or `off`",
                size(bytes)
            )),
            Cutoff(bytes) => Ok(Budget(bytes)),
        }
    }
}

/// The greatest age: seconds, or with a unit, or any age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Age(pub(crate) Nanos);

impl Age {
    /// An age that nothing has.
    pub(crate) const NEVER: Nanos = Nanos(u64::MAX);
}

impl std::str::FromStr for Age {
    type Err = String;

    fn from_str(text: &str) -> Result<Age, String> {
        if text == "never" {
            return Ok(Age(Age::NEVER));
        }
        let split = text
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len());
        let (number, unit) = text.split_at(split);
        let factor = match unit.trim() {
            "ms" => Some(1),
            "" | "s" => Some(1_000),
            "min" => Some(60_000),
            "h" => Some(3_600_000),
            "d" => Some(86_400_000),
            _ => None,
        };
        let number: Option<u64> = number.parse().ok();
        number
            .zip(factor)
            .and_then(|(number, factor)| number.checked_mul(factor))
            .and_then(|millis| millis.checked_mul(Nanos::MILLISECOND.0))
            .map(|nanos| Age(Nanos(nanos)))
            .ok_or_else(|| format!("`{text}` is not a time: write seconds, or 5min, 2h, 1d"))
    }
}

/// Reads `10` or `10%`.
pub(crate) fn parse_percent(text: &str) -> Result<u8, String> {
    text.trim_end_matches('%')
        .trim_end()
        .parse()
        .ok()
        .filter(|percent| *percent <= 100)
        .ok_or_else(|| format!("`{text}` is not a percentage from 0 to 100"))
}

/// Speed as a multiple of a trace's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Speed {
    Factor(f64),
    /// As fast as possible.
    Max,
}

impl std::str::FromStr for Speed {
    type Err = String;

    fn from_str(text: &str) -> Result<Speed, String> {
        if text == "max" {
            return Ok(Speed::Max);
        }
        match text.parse::<f64>() {
            Ok(factor) if (1e-6..=1e6).contains(&factor) => Ok(Speed::Factor(factor)),
            _ => Err(format!("`{text}` is not a speed such as 1, 2.5 or max")),
        }
    }
}

impl std::fmt::Display for Speed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Speed::Factor(factor) => write!(f, "{factor}"),
            Speed::Max => write!(f, "max"),
        }
    }
}

/// The size of a simulated cache: `20000` blocks, or `5%` of the distinct blocks of a trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum CacheSize {
    Blocks(u64),
    Percent(f64),
}

impl CacheSize {
    /// In blocks, at least one.
    pub(crate) fn blocks(self, footprint: usize) -> u64 {
        let blocks = match self {
            CacheSize::Blocks(blocks) => blocks,
            CacheSize::Percent(percent) => (footprint as f64 * percent / 100.0) as u64,
        };
        blocks.max(1)
    }
}

impl std::str::FromStr for CacheSize {
    type Err = String;

    fn from_str(text: &str) -> Result<CacheSize, String> {
        let wrong = || format!("`{text}` is not a cache size such as 20000 (blocks) or 5%");
        let Some(number) = text.strip_suffix('%') else {
            return match text.parse() {
                Ok(blocks) if blocks > 0 => Ok(CacheSize::Blocks(blocks)),
                _ => Err(wrong()),
            };
        };
        match number.parse::<f64>() {
            Ok(percent) if percent.is_finite() && percent > 0.0 => Ok(CacheSize::Percent(percent)),
            _ => Err(wrong()),
        }
    }
}

impl std::fmt::Display for CacheSize {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CacheSize::Blocks(blocks) => write!(f, "{blocks}"),
            CacheSize::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// `3.2 GiB`.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 || (value.fract() == 0.0 && value < 1024.0) {
        format!("{value:.0} {}", UNITS[unit])
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

/// `1 h 02 min`, `3 min 20 s`, `4.2 s`.
pub(crate) fn duration(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        3600.. => format!("{} h {:02} min", whole / 3600, whole / 60 % 60),
        60.. => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{seconds:.1} s"),
    }
}

/// `120 µs`, `4.5 ms`.
pub(crate) fn latency(nanos: u64) -> String {
    match nanos {
        0 => "-".to_owned(),
        1..1_000_000 => format!("{} µs", nanos / 1000),
        1_000_000..1_000_000_000 => format!("{:.1} ms", nanos as f64 / 1e6),
        _ => format!("{:.1} s", nanos as f64 / 1e9),
    }
}

/// A part as a share of the whole; none of nothing.
pub(crate) fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// `97.3 %`, or `-` of nothing.
pub(crate) fn share(part: u64, whole: u64) -> String {
    if whole == 0 {
        "-".to_owned()
    } else {
        format!("{:.1} %", part as f64 * 100.0 / whole as f64)
    }
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written() {
        for (text, bytes) in [
            ("4096", 4096),
            ("64K", 65536),
            ("1.5GiB", 3 << 29),
            ("2t", 2 << 40),
            ("0", 0),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for wrong in ["", "x", "1X", "-1", "99999999999999T", "1.2.3G"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
        assert_eq!(
            (size(512), size(1536), size(1 << 30)),
            ("512 B".into(), "1.5 KiB".into(), "1 GiB".into())
        );
        assert_eq!("off".parse(), Ok(Cutoff(None)));
        assert_eq!("0".parse(), Ok(Cutoff(None)));
        assert_eq!("4B".parse(), Ok(Cutoff(Some(4))));
        let said = "4".parse::<Cutoff>().unwrap_err();
        assert!(said.contains("4K, 4M or 4G"), "{said}");
        let read = |text: &str| text.parse::<WrittenSize>().unwrap().reading();
        assert!(read("1GB").unwrap().contains("1 GiB, 1073741824 bytes"));
        assert_eq!((read("1G"), read("1GiB"), read("5B")), (None, None, None));
        assert_eq!("off".parse(), Ok(Budget(None)));
        assert_eq!("1M".parse(), Ok(Budget(Some(1 << 20))));
        assert_eq!("90".parse(), "90s".parse::<Age>());
        assert_eq!("90".parse(), "90000ms".parse::<Age>());
        assert_eq!("2h".parse(), Ok(Age(Nanos(7200 * Nanos::SECOND.0))));
        assert!("2 weeks".parse::<Age>().is_err() && "999999999999d".parse::<Age>().is_err());
        for (text, blocks) in [
            ("20000", 20000),
            ("1%", 2692),
            ("0.0001%", 1),
            ("200%", 538_420),
        ] {
            let size: CacheSize = text.parse().expect(text);
            assert_eq!(
                (size.blocks(269_210), size.to_string()),
                (blocks, text.to_owned())
            );
        }
        for wrong in ["", "0", "%", "-1%", "0%", "inf%", "1K"] {
            assert!(wrong.parse::<CacheSize>().is_err(), "{wrong}");
        }
    }
}
