//! Repeats published comparisons in virtual time and writes down what came of it.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Instant;

use forebay_experiments::jobs::{self, JobResult, JobsOptions};
use forebay_experiments::report::{self, Everything};
use forebay_experiments::{
    after, arrays, burst, crossvalidate, day, invisible, limit, mail, memory, pauses, policies,
    raid, reads, through, writeback,
};
use forebay_virtual::CpuCost;

const USAGE: &str =
    "usage: forebay-experiments [jobs] [limit] [burst] [reads] [after] [invisible] [through] [memory] [mail] [raid] [arrays] [pauses] [writeback] [day] [options]
       forebay-experiments policies --help
  which to run; all without a name
  --markdown FILE  replace the tables in this document, between its marks
  --scale N        everything N times smaller (1; arrays: 32): jobs, mail, raid, arrays, day
  --minutes FILE   write the minutes of the day there, as comma-separated values
  --cpu NAME       the jobs with this processor time only: nbd or engine (both)";

const ARRAYS_SCALE: u64 = 32;

struct Arguments {
    names: Vec<String>,
    markdown: Option<String>,
    minutes: Option<String>,
    scale: u64,
    costs: Vec<CpuCost>,
}

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("policies") => return traces_main(policies::USAGE, policies::run),
        Some("crossvalidate") => return traces_main(crossvalidate::USAGE, crossvalidate::run),
        _ => {}
    }
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(message) => {
            eprintln!("{message}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match execute(&arguments) {
        Ok(missed) if missed.is_empty() => ExitCode::SUCCESS,
        Ok(missed) => {
            for condition in missed {
                eprintln!("MISSED: {condition}");
            }
            ExitCode::FAILURE
        }
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a command over traces: from its words and a place for its progress to its output.
type OverTraces = fn(std::env::Args, &(dyn Fn(&str) + Sync)) -> Result<String, String>;

/// A comparison of replacement, which has options of its own.
fn traces_main(usage: &str, run: OverTraces) -> ExitCode {
    let mut words = std::env::args();
    let name: Vec<String> = words.by_ref().take(2).collect();
    if std::env::args().any(|word| word == "--help") {
        println!("{usage}");
        return ExitCode::SUCCESS;
    }
    match run(words, &|step| eprintln!("{step}")) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("{message}\n{} --help says what there is", name.join(" "));
            ExitCode::from(2)
        }
    }
}

fn parse(words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments = Arguments {
        names: Vec::new(),
        markdown: None,
        minutes: None,
        scale: 1,
        costs: vec![CpuCost::NBD, CpuCost::ENGINE],
    };
    let mut words = words;
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "jobs" | "limit" | "burst" | "reads" | "after" | "invisible" | "through" | "memory"
            | "mail" | "raid" | "arrays" | "pauses" | "writeback" | "day" => {
                arguments.names.push(word)
            }
            "--markdown" => arguments.markdown = Some(value()?),
            "--minutes" => arguments.minutes = Some(value()?),
            "--scale" => {
                arguments.scale = value()?
                    .parse()
                    .ok()
                    .filter(|scale| (1..=1024).contains(scale))
                    .ok_or("--scale is a whole number from 1 to 1024")?;
            }
            "--cpu" => {
                arguments.costs = match value()?.as_str() {
                    "nbd" => vec![CpuCost::NBD],
                    "engine" => vec![CpuCost::ENGINE],
                    _ => return Err("--cpu is nbd or engine".to_owned()),
                }
            }
            _ => return Err(format!("`{word}` is not understood")),
        }
    }
    Ok(arguments)
}

/// Runs the 22 jobs, once for each cost of processor time, beside each other.
fn run_jobs(
    arguments: &Arguments,
    say: &(dyn Fn(String) + Sync),
) -> Result<Vec<(CpuCost, Vec<JobResult>)>, String> {
    let run = |cpu: CpuCost| {
        let options = JobsOptions::new(arguments.scale, cpu);
        jobs::run(&options, |result| say(report::job_line(cpu.name, result)))
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = arguments
            .costs
            .iter()
            .map(|cpu| (*cpu, scope.spawn(|| run(*cpu))))
            .collect();
        let ended = threads.into_iter().map(|(cpu, thread)| {
            let results = thread.join().map_err(|_| "a run of the jobs broke off")?;
            Ok((cpu, results?))
        });
        ended.collect()
    })
}

/// Runs what was asked for; returns the conditions that do not hold.
fn execute(arguments: &Arguments) -> Result<Vec<String>, String> {
    let wanted =
        |name: &str| arguments.names.is_empty() || arguments.names.iter().any(|word| word == name);
    let began = Instant::now();
    let say = |text: String| {
        println!("{:6.0} s  {text}", began.elapsed().as_secs_f64());
        // A reader of a pipe wants to see that it goes on.
        std::io::stdout().flush().ok();
    };
    let mut all = Everything::default();
    if wanted("jobs") {
        all.jobs = run_jobs(arguments, &say)?;
    }
    if wanted("limit") {
        all.limit = Some(limit::run(CpuCost::ENGINE)?);
        say("random writes past the dirty limit: done".to_owned());
    }
    if wanted("burst") {
        let say = |result: &_| say(report::burst_line(result));
        all.burst = burst::run(CpuCost::ENGINE, &burst::CACHE_BYTES, say)?;
    }
    if wanted("reads") {
        let say = |result: &_| say(report::reads_line(result));
        all.reads = reads::run(CpuCost::ENGINE, say)?;
    }
    if wanted("after") {
        let result = after::run(CpuCost::NBD)?;
        say(report::after_line(&result));
        all.after = Some(result);
    }
    if wanted("invisible") {
        let say = |result: &_| say(report::invisible_line(result));
        all.invisible = invisible::run(CpuCost::ENGINE, 1, say)?;
    }
    if wanted("through") {
        let say = |result: &_| say(report::through_line(result));
        all.through = through::run(CpuCost::ENGINE, say)?;
    }
    if wanted("memory") {
        all.memory = memory::run(CpuCost::ENGINE)?;
        say("writes acknowledged from memory: done".to_owned());
    }
    if wanted("mail") {
        all.mail = mail::run(arguments.scale, CpuCost::NBD, |result| {
            say(report::mail_line(result));
        })?;
    }
    if wanted("raid") {
        all.raid = raid::run(arguments.scale, CpuCost::NBD, |result| {
            say(report::raid_line(result));
        })?;
    }
    if wanted("arrays") {
        // At full size it takes an hour, and shows little else.
        let scale = match arguments.scale {
            1 => ARRAYS_SCALE,
            scale => scale,
        };
        all.arrays = arrays::run(scale, CpuCost::ENGINE, |result| {
            say(report::array_line(result));
        })?;
    }
    if wanted("pauses") {
        all.pauses = pauses::run(CpuCost::ENGINE, |result| say(report::pauses_line(result)))?;
    }
    if wanted("writeback") {
        all.writeback = writeback::run(CpuCost::ENGINE, |result| {
            say(format!("write-back policy {}: done", result.policy));
        })?;
    }
    if wanted("day") {
        let say = |name: &str, minutes: &[_]| say(report::day_line(name, minutes));
        let result = day::run(arguments.scale, CpuCost::NBD, say)?;
        if let Some(path) = &arguments.minutes {
            let failed = |error| format!("{path}: {error}");
            std::fs::write(path, report::day_minutes(&result)).map_err(failed)?;
        }
        all.day = Some(result);
    }
    let tables = report::markdown(&all)?;
    match &arguments.markdown {
        Some(path) => {
            let failed = |error| format!("{path}: {error}");
            let old = std::fs::read_to_string(path).map_err(failed)?;
            std::fs::write(path, report::between_marks(&old, &tables)?).map_err(failed)?;
        }
        None => println!("{tables}"),
    }
    Ok(report::missed(&all))
}
