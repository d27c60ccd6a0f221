//! Commands step by step, carried out by hand: the order of their steps, and the end of a command
//! whose record cannot be made.

use forebay_cache::control::{Change, Command, Control, Happened, Refusal, Step};
use forebay_cache::{Answer, Backlog, Instruction};
use forebay_engine::{
    CacheId, DeviceError, Geometry, Mode, Superblock, SuperblockError, VolumeSlot,
};

const VOLUME: VolumeSlot = VolumeSlot(0);
const DRAIN: Command = Command::Drain {
    volume: VOLUME,
    left_blocks: 0,
};
const FAILED: SuperblockError = SuperblockError::Device(DeviceError::Io);

/// The host says how many blocks are dirty, and how many of these cannot be read.
fn dirty(dirty_blocks: u64, unreadable_blocks: u64) -> Happened {
    let backlog = Backlog {
        dirty_blocks,
        unreadable_blocks,
        ..Backlog::default()
    };
    Happened::Instructed(vec![Answer::Backlog(backlog)])
}

/// The commands of a cache that serves one volume.
fn control() -> Control {
    let geometry = Geometry::for_device(1 << 30, 4096, Some(2), 1).expect("a geometry");
    let mut superblock = Superblock::new(CacheId([7; 16]), geometry, 1 << 30);
    let id = superblock
        .add_volume("data", 1 << 20, Mode::Writeback as u8)
        .expect("room")
        .id;
    let mut control = Control::new(superblock);
    assert_eq!(control.add_volume(id), VOLUME);
    control
}

/// The driver and its devices in these tests.
struct World {
    /// Results of the first records, in order; later records succeed.
    records: Vec<Result<(), SuperblockError>>,
    dirty: Vec<u64>,
    flushed: bool,
    /// Whether the origin answers.
    asked: Result<(), DeviceError>,
    told: Vec<String>,
}

impl World {
    fn new() -> World {
        World {
            records: Vec::new(),
            dirty: Vec::new(),
            flushed: true,
            asked: Ok(()),
            told: Vec::new(),
        }
    }

    fn carry_out(&mut self, control: &mut Control, command: Command) -> Result<(), Refusal> {
        let id = control.begin(command)?;
        let mut happened = Happened::Begun;
        for _ in 0..100 {
            let step = control.go_on(id, happened);
            self.told.push(word_for(&step));
            happened = match step {
                Step::Instruct(instruction) | Step::Look(instruction) => {
                    let answer = self.answer(&instruction);
                    Happened::Instructed(vec![answer.clone(), answer])
                }
                Step::Record(change) => Happened::Recorded(self.record(control, &change)),
                Step::Flush(_) => Happened::Flushed(self.flushed),
                Step::Release(_) => Happened::Released(true),
                Step::Ask(_) => Happened::Asked(self.asked),
                Step::See(_) => Happened::Seen(Ok(Vec::new())),
                Step::Wait => panic!("nothing to wait for: {:?}", self.told),
                Step::Ended(result) => return result,
            };
        }
        panic!("it does not end: {:?}", self.told)
    }

    fn answer(&mut self, instruction: &Instruction) -> Answer {
        match instruction {
            Instruction::CountDirty(_) => Answer::Backlog(Backlog {
                dirty_blocks: self.dirty.pop().unwrap_or(0),
                ..Backlog::default()
            }),
            Instruction::CountRequests(_)
            | Instruction::CountUnsettled
            | Instruction::RemoveVolume(_) => Answer::Left(0),
            _ => Answer::Done,
        }
    }

    fn record(&mut self, control: &mut Control, change: &Change) -> Result<(), SuperblockError> {
        let superblock = control.take_superblock().expect("nobody else writes it");
        let result = if self.records.is_empty() {
            Ok(())
        } else {
            self.records.remove(0)
        };
        let changed = match result {
            Ok(()) => change.of(&superblock).expect("it can be"),
            Err(_) => superblock,
        };
        control.give_superblock(changed);
        result
    }
}

fn word_for(step: &Step) -> String {
    let all = format!("{step:?}");
    let words: Vec<&str> = all
        .split(['(', ' ', ')', ','])
        .filter(|word| !word.is_empty())
        .collect();
    words[..words.len().min(2)].join(" ")
}

fn order_of(told: &[String], first: &str, then: &str) {
    let place = |what: &str| {
        let found = told.iter().position(|step| step == what);
        found.unwrap_or_else(|| panic!("no {what} in {told:?}"))
    };
    assert!(place(first) < place(then), "{told:?}");
}

#[test]
fn a_mode_is_on_record_before_it_is_in_force() {
    let (mut control, mut world) = (control(), World::new());
    let command = Command::SetMode(VOLUME, Mode::Writethrough);
    assert_eq!(world.carry_out(&mut control, command), Ok(()));
    order_of(&world.told, "Record Mode", "Instruct SetMode");
    assert_eq!(
        control.superblock().volumes[0].mode,
        Mode::Writethrough as u8
    );
}

#[test]
fn a_larger_size_is_on_record_before_requests_go_so_far() {
    let (mut control, mut world) = (control(), World::new());
    let grow = |size_bytes| Command::GrowVolume(VOLUME, size_bytes);
    assert_eq!(world.carry_out(&mut control, grow(3 << 20)), Ok(()));
    order_of(&world.told, "Record VolumeSize", "Instruct GrowVolume");
    assert_eq!(control.superblock().volumes[0].size_bytes, 3 << 20);
    for refused in [1 << 20, 3 << 20, 1 << 40] {
        let result = control.begin(grow(refused));
        assert!(matches!(result, Err(Refusal::Size(_))), "{result:?}");
    }
    control.begin(grow(4 << 20)).expect("it is there");
    let second = control.begin(grow(5 << 20));
    assert!(matches!(second, Err(Refusal::Size(_))), "{second:?}");
}

#[test]
fn a_size_that_cannot_be_recorded_is_not_told_and_can_be_asked_for_again() {
    let (mut control, mut world) = (control(), World::new());
    world.records = vec![Err(FAILED)];
    let grow = || Command::GrowVolume(VOLUME, (3 << 20) + 512);
    let refused = world.carry_out(&mut control, grow());
    assert_eq!(refused, Err(Refusal::NotRecorded(FAILED)));
    assert!(!world.told.iter().any(|step| step == "Instruct GrowVolume"));
    assert_eq!(control.superblock().volumes[0].size_bytes, 1 << 20);
    assert_eq!(world.carry_out(&mut control, grow()), Ok(()));
    let within_a_block = control.begin(Command::GrowVolume(VOLUME, 4 << 20));
    let why = Err(Refusal::Size("the volume ends within a block"));
    assert_eq!(within_a_block, why);
}

#[test]
fn nothing_of_a_volume_is_on_its_way_when_it_stops_to_count() {
    let (mut control, mut world) = (control(), World::new());
    world.dirty = vec![0, 3, 0, 7];
    assert_eq!(
        world.carry_out(&mut control, Command::Detach(VOLUME)),
        Ok(())
    );
    order_of(&world.told, "Instruct SetDetaching", "Look CountRequests");
    order_of(&world.told, "Look CountRequests", "Flush VolumeSlot");
    order_of(&world.told, "Flush VolumeSlot", "Record Detach");
    order_of(&world.told, "Record Detach", "Instruct RemoveVolume");
    assert!(
        world.dirty.is_empty(),
        "both times it waited until nothing was dirty"
    );
    assert_eq!(control.id_of(VOLUME), None);
}

#[test]
fn a_volume_goes_on_whose_detach_cannot_be_recorded() {
    let (mut control, mut world) = (control(), World::new());
    world.records = vec![Err(FAILED), Ok(())];
    let result = world.carry_out(&mut control, Command::Detach(VOLUME));
    assert_eq!(result, Err(Refusal::NotRecorded(FAILED)));
    order_of(&world.told, "Record Detach", "Record Again");
    assert_eq!(
        world
            .told
            .iter()
            .filter(|step| *step == "Instruct SetDetaching")
            .count(),
        2
    );
    assert!(!world.told.contains(&"Instruct RemoveVolume".to_owned()));
    assert_eq!(
        World::new().carry_out(&mut control, Command::Detach(VOLUME)),
        Ok(())
    );
}

/// The superblock may say that nothing of it counts: a client's writes from then on would be lost.
#[test]
fn a_volume_takes_no_requests_that_may_be_detached() {
    let (mut control, mut world) = (control(), World::new());
    world.records = vec![Err(FAILED), Err(FAILED)];
    let result = world.carry_out(&mut control, Command::Detach(VOLUME));
    assert_eq!(result, Err(Refusal::Uncertain(FAILED)));
    assert_eq!(
        world
            .told
            .iter()
            .filter(|step| *step == "Instruct SetDetaching")
            .count(),
        1
    );
    assert_eq!(
        World::new().carry_out(&mut control, Command::Detach(VOLUME)),
        Ok(())
    );
}

/// A flush may bring the news that something was lost.
#[test]
fn a_volume_is_not_detached_whose_flush_fails() {
    let (mut control, mut world) = (control(), World::new());
    world.flushed = false;
    let result = world.carry_out(&mut control, Command::Detach(VOLUME));
    assert_eq!(result, Err(Refusal::Flush(VOLUME)));
    assert!(!world.told.contains(&"Record Detach".to_owned()));
}

#[test]
fn a_volume_that_leaves_is_nobody_elses() {
    let mut control = control();
    let first = control.begin(Command::Detach(VOLUME)).expect("it is there");
    for other in [
        Command::Detach(VOLUME),
        Command::SetMode(VOLUME, Mode::Writeback),
        DRAIN,
        Command::Rename(VOLUME, "other".to_owned()),
    ] {
        assert_eq!(control.begin(other), Err(Refusal::Gone));
    }
    let name = Command::Rename(VOLUME, "data".to_owned());
    assert!(control.begin(name).is_err());
    control.interrupt(first);
}

/// The number of a volume is given again once it is removed, and must not be another's by then for
/// a command that has it.
#[test]
fn a_volume_is_removed_when_others_are_done_with_it() {
    let mut control = control();
    let mode = control
        .begin(Command::SetMode(VOLUME, Mode::Writearound))
        .expect("it is there");
    assert!(matches!(
        control.go_on(mode, Happened::Begun),
        Step::Record(_)
    ));
    let detach = control.begin(Command::Detach(VOLUME)).expect("it is there");
    let mut world = World::new();
    let mut happened = Happened::Begun;
    let step = loop {
        match control.go_on(detach, happened) {
            Step::Instruct(instruction) | Step::Look(instruction) => {
                happened = Happened::Instructed(vec![world.answer(&instruction)]);
            }
            Step::Record(change) => {
                happened = Happened::Recorded(world.record(&mut control, &change));
            }
            Step::Flush(_) => happened = Happened::Flushed(true),
            Step::Release(_) => happened = Happened::Released(true),
            step => break step,
        }
    };
    assert!(matches!(step, Step::Wait), "{step:?}");
    let step = control.go_on(mode, Happened::Recorded(Ok(())));
    assert!(
        matches!(step, Step::Instruct(Instruction::SetMode(..))),
        "{step:?}"
    );
    assert!(matches!(
        control.go_on(mode, Happened::Instructed(vec![Answer::Done])),
        Step::Ended(Ok(()))
    ));
    let step = control.go_on(detach, Happened::Waited);
    assert!(
        matches!(step, Step::Instruct(Instruction::RemoveVolume(_))),
        "{step:?}"
    );
}

#[test]
fn a_stop_waits_for_others_and_has_them_give_way() {
    let mut control = control();
    let drain = control.begin(DRAIN).expect("it is there");
    control.go_on(drain, Happened::Begun);
    let stop = control.begin(Command::Stop).expect("nobody stops it yet");
    assert!(matches!(control.go_on(stop, Happened::Begun), Step::Wait));
    assert_eq!(control.begin(Command::Stop), Err(Refusal::Stopping));
    let step = control.go_on(drain, dirty(9, 0));
    let ceases = Instruction::SetDraining(VOLUME, false);
    assert!(matches!(&step, Step::Instruct(told) if format!("{told:?}") == format!("{ceases:?}")));
    let step = control.go_on(drain, Happened::Instructed(vec![Answer::Done]));
    assert!(matches!(step, Step::Ended(Err(Refusal::Interrupted))));
    assert!(matches!(
        control.go_on(stop, Happened::Waited),
        Step::Instruct(Instruction::LimitWriteback)
    ));
    assert!(matches!(
        control.go_on(stop, Happened::Instructed(vec![Answer::Done])),
        Step::Flush(VOLUME)
    ));
}

#[test]
fn a_drain_ends_when_only_what_cannot_be_read_is_left() {
    let mut control = control();
    let drain = control.begin(DRAIN).expect("it is there");
    control.go_on(drain, Happened::Begun);
    let left = |unreadable_blocks| dirty(2, unreadable_blocks);
    assert!(matches!(control.go_on(drain, left(1)), Step::Look(_)));
    assert!(matches!(control.go_on(drain, left(2)), Step::Instruct(_)));
    let step = control.go_on(drain, Happened::Instructed(vec![Answer::Done]));
    assert!(
        matches!(step, Step::Ended(Err(Refusal::Unreadable(2)))),
        "{step:?}"
    );
}

#[test]
fn a_drain_ends_when_no_more_is_dirty_than_may_be_left() {
    let mut control = control();
    let drain = Command::Drain {
        volume: VOLUME,
        left_blocks: 5,
    };
    let drain = control.begin(drain).expect("it is there");
    control.go_on(drain, Happened::Begun);
    assert!(matches!(control.go_on(drain, dirty(6, 0)), Step::Look(_)));
    assert!(matches!(
        control.go_on(drain, dirty(5, 0)),
        Step::Instruct(_)
    ));
    let step = control.go_on(drain, Happened::Instructed(vec![Answer::Done]));
    assert!(matches!(step, Step::Ended(Ok(()))), "{step:?}");
}

#[test]
fn one_command_at_a_time_changes_a_mode() {
    let mut control = control();
    let first = Command::SetMode(VOLUME, Mode::Writearound);
    control.begin(first).expect("it is there");
    let second = Command::SetMode(VOLUME, Mode::Writeback);
    assert_eq!(control.begin(second), Err(Refusal::ModeIsChanging));
}

/// A freeze has a busy client's writes go to the origin: nobody may end that behind its back.
#[test]
fn a_passing_mode_is_not_on_record_and_gives_way() {
    let (mut control, mut world) = (control(), World::new());
    let freeze = control.begin(Command::Freeze(VOLUME)).expect("it is there");
    let passing = || Command::PassingMode(VOLUME, Mode::Writethrough);
    assert_eq!(control.begin(passing()), Err(Refusal::ModeIsChanging));
    control.interrupt(freeze);
    control.go_on(freeze, Happened::Begun);
    control.go_on(freeze, dirty(9, 0));
    let step = control.go_on(freeze, Happened::Instructed(vec![Answer::Done]));
    assert!(matches!(step, Step::Ended(Err(_))), "{step:?}");

    assert_eq!(world.carry_out(&mut control, passing()), Ok(()));
    assert_eq!(world.told, ["Instruct SetMode", "Ended Ok"]);
    assert_eq!(control.superblock().volumes[0].mode, Mode::Writeback as u8);
    // It writes through already, and goes on to.
    let through = world.carry_out(&mut control, Command::Freeze(VOLUME));
    assert_eq!(through, Ok(()));
    assert_eq!(times(&world.told, "Instruct SetMode"), 1);
    for command in [
        Command::Thaw(VOLUME),
        Command::SetMode(VOLUME, Mode::Writeback),
        Command::Freeze(VOLUME),
    ] {
        assert_eq!(world.carry_out(&mut control, command), Ok(()));
    }
    assert_eq!(times(&world.told, "Instruct SetMode"), 4);
}

fn times(told: &[String], what: &str) -> usize {
    told.iter().filter(|step| *step == what).count()
}

#[test]
fn nothing_of_a_frozen_volume_is_on_its_way() {
    let (mut control, mut world) = (control(), World::new());
    world.dirty = vec![0, 0, 9, 9, 2_000, 2_000];
    let freeze = || Command::Freeze(VOLUME);
    assert_eq!(world.carry_out(&mut control, freeze()), Ok(()));
    order_of(&world.told, "Instruct SetDraining", "Instruct SetMode");
    order_of(&world.told, "Instruct SetMode", "Instruct SetFrozen");
    order_of(&world.told, "Instruct SetFrozen", "Look CountChanges");
    order_of(&world.told, "Look CountChanges", "Flush VolumeSlot");
    assert_eq!(times(&world.told, "Instruct SetMode"), 2, "as it was");
    assert_eq!(times(&world.told, "Instruct SetFrozen"), 1);
    assert_eq!(control.superblock().volumes[0].mode, Mode::Writeback as u8);
    for refused in [freeze(), Command::Detach(VOLUME), Command::HandOver(VOLUME)] {
        assert_eq!(control.begin(refused), Err(Refusal::Frozen));
    }
    let thaw = || Command::Thaw(VOLUME);
    assert_eq!(world.carry_out(&mut control, thaw()), Ok(()));
    assert_eq!(times(&world.told, "Instruct SetFrozen"), 2);
    assert_eq!(control.begin(thaw()), Err(Refusal::NotFrozen));
    assert_eq!(world.carry_out(&mut control, freeze()), Ok(()));
}

/// Found by the simulator, seed 19015220.
#[test]
fn a_volume_is_thawed_while_its_mode_changes() {
    let (mut control, mut world) = (control(), World::new());
    let freeze = Command::Freeze(VOLUME);
    assert_eq!(world.carry_out(&mut control, freeze), Ok(()));
    let mode = control.begin(Command::SetMode(VOLUME, Mode::Readonly));
    control.go_on(mode.expect("it is there"), Happened::Begun);
    let thaw = Command::Thaw(VOLUME);
    assert_eq!(world.carry_out(&mut control, thaw), Ok(()));
}

/// An origin that hangs must not hold clients up for ever.
#[test]
fn a_volume_is_not_frozen_whose_rest_is_not_written_back() {
    let (mut control, mut world) = (control(), World::new());
    world.dirty = vec![5; 300];
    let result = world.carry_out(&mut control, Command::Freeze(VOLUME));
    assert_eq!(result, Err(Refusal::Stuck));
    assert_eq!(times(&world.told, "Instruct SetFrozen"), 2);
    assert_eq!(times(&world.told, "Instruct SetDraining"), 2);
    assert_eq!(times(&world.told, "Instruct SetMode"), 2);
    world.dirty.clear();
    assert_eq!(
        world.carry_out(&mut control, Command::Freeze(VOLUME)),
        Ok(())
    );
}

#[test]
fn clients_who_write_faster_than_the_origin_are_held_up_by_it() {
    let (mut control, mut world) = (control(), World::new());
    let outrun = vec![20_000; 60];
    world.dirty = [vec![5, 5], outrun].concat();
    let freeze = Command::Freeze(VOLUME);
    assert_eq!(world.carry_out(&mut control, freeze), Ok(()));
    let looks = world
        .told
        .iter()
        .take_while(|step| *step != "Instruct SetMode");
    assert!((20..30).contains(&looks.count()), "{:?}", world.told);
}

#[test]
fn clients_never_wait_for_an_origin_that_does_not_answer() {
    let (mut control, mut world) = (control(), World::new());
    world.asked = Err(DeviceError::Io);
    assert_eq!(
        world.carry_out(&mut control, Command::Freeze(VOLUME)),
        Err(Refusal::Unseen(DeviceError::Io))
    );
    for instruction in ["Instruct SetMode", "Instruct SetFrozen"] {
        assert_eq!(times(&world.told, instruction), 0, "{:?}", world.told);
    }
    world.asked = Ok(());
    assert_eq!(
        world.carry_out(&mut control, Command::Freeze(VOLUME)),
        Ok(())
    );
}

#[test]
fn a_volume_is_not_frozen_whose_flush_fails() {
    let (mut control, mut world) = (control(), World::new());
    world.flushed = false;
    let result = world.carry_out(&mut control, Command::Freeze(VOLUME));
    assert_eq!(result, Err(Refusal::Flush(VOLUME)));
    assert_eq!(times(&world.told, "Instruct SetFrozen"), 2);
    assert_eq!(
        control.begin(Command::Thaw(VOLUME)),
        Err(Refusal::NotFrozen)
    );
}

#[test]
fn a_volume_is_frozen_before_it_is_handed_over() {
    let (mut control, mut world) = (control(), World::new());
    let command = || Command::HandOver(VOLUME);
    assert_eq!(world.carry_out(&mut control, command()), Ok(()));
    order_of(&world.told, "Instruct SetFrozen", "Release VolumeSlot");
    // To take its block device away, the kernel waits for each of its requests.
    let release = world
        .told
        .iter()
        .position(|step| step == "Release VolumeSlot");
    let before = &world.told[..release.expect("its users let go")];
    assert_eq!(times(before, "Instruct SetFrozen"), 2);
    order_of(&world.told, "Release VolumeSlot", "Instruct SetDetaching");
    order_of(&world.told, "Record Detach", "Instruct RemoveVolume");
    assert_eq!(control.id_of(VOLUME), None);
}

#[test]
fn a_volume_that_cannot_be_handed_over_is_thawed() {
    let (mut control, mut world) = (control(), World::new());
    world.records = vec![Err(FAILED), Ok(())];
    let result = world.carry_out(&mut control, Command::HandOver(VOLUME));
    assert_eq!(result, Err(Refusal::NotRecorded(FAILED)));
    assert_eq!(times(&world.told, "Instruct SetFrozen"), 3);
    assert_eq!(
        world.carry_out(&mut control, Command::HandOver(VOLUME)),
        Ok(())
    );
}
