//! Names given on the command line, checked against those that are known.

use anyhow::bail;

/// Something chosen by name.
pub trait Named {
    /// Its name.
    fn name(&self) -> &'static str;
    /// A description in a line.
    fn summary(&self) -> &'static str;
}

/// Chooses the elements of `all` that a list with commas names, in its order.
///
/// # Errors
/// If a name is not known; the message lists those that are.
pub fn choose<'a, T: Named>(what: &str, names: &str, all: &'a [T]) -> anyhow::Result<Vec<&'a T>> {
    let mut chosen = Vec::new();
    for name in names
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
    {
        match all.iter().find(|one| one.name() == name) {
            Some(one) => chosen.push(one),
            None => {
                let known: Vec<_> = all.iter().map(Named::name).collect();
                bail!(
                    "no {what} is called {name:?}; known are {}",
                    known.join(", ")
                );
            }
        }
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::systems::SYSTEMS;

    #[test]
    fn a_mistake_names_what_is_known() {
        let error = choose("system", "hdd,bcahce", SYSTEMS)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("\"bcahce\"") && error.contains("bcache-all"),
            "{error}"
        );
        let chosen = choose("system", "ssd, hdd", SYSTEMS).unwrap();
        assert_eq!(chosen[0].name(), "ssd");
        assert_eq!(chosen[1].name(), "hdd");
    }
}
