//! Settings that somebody gave, as options or in a file.

use clap::{Arg, ArgMatches, Command};
use forebay_engine::Settings;

use super::table::{SETTINGS, Setting};

/// Some settings, each with a value that it can have.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct GivenSettings(Vec<(&'static str, String)>);

impl GivenSettings {
    /// Adds one.
    ///
    /// # Errors
    /// Says why the value cannot be.
    pub(crate) fn add(&mut self, setting: &'static Setting, value: String) -> Result<(), String> {
        setting.check(&value)?;
        self.0.push((setting.name, value));
        Ok(())
    }

    /// The settings that these make of others.
    pub(crate) fn over(&self, mut settings: Settings) -> Settings {
        for (name, value) in &self.0 {
            let setting = Setting::named(name).expect("only what is in the table is added");
            let set = setting.set(&mut settings, value);
            set.expect("only what can be is added");
        }
        settings
    }
}

impl Setting {
    fn check(&self, value: &str) -> Result<(), String> {
        self.set(&mut Settings::default(), value)
    }

    fn option(&'static self) -> Arg {
        let check = |text: &str| self.check(text).map(|()| text.to_owned());
        let Setting { values, effect, .. } = self;
        let default = self.show(&Settings::default());
        Arg::new(self.name)
            .long(self.name)
            .value_name(self.kind.placeholder())
            .value_parser(check)
            .allow_negative_numbers(true)
            .help(format!("{effect}. Values: {values} [default: {default}]"))
    }
}

impl clap::Args for GivenSettings {
    fn augment_args(command: Command) -> Command {
        command.args(SETTINGS.iter().map(Setting::option))
    }

    fn augment_args_for_update(command: Command) -> Command {
        GivenSettings::augment_args(command)
    }
}

impl clap::FromArgMatches for GivenSettings {
    fn from_arg_matches(matches: &ArgMatches) -> Result<GivenSettings, clap::Error> {
        let given = SETTINGS.iter().filter_map(|setting| {
            let value = matches.get_one::<String>(setting.name)?;
            Some((setting.name, value.clone()))
        });
        Ok(GivenSettings(given.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = GivenSettings::from_arg_matches(matches)?;
        Ok(())
    }
}
