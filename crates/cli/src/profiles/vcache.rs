//! vCache.

use forebay_engine::Mode;

use super::profile::Profile;

/// A cache of which one comparison is public.
pub(super) const PROFILE: Profile = Profile {
    name: "vcache",
    title: "vCache, Virident's cache for its PCIe flash, known from a comparison of 2013",
    source: "\"Virident vCache vs. FlashCache\", parts 1 and 2, on mysqlperformanceblog.com, May 2013; the names of its settings are not public",
    mode: Mode::Writeback,
    base: "writeback=timed dirty-high=50",
    remarks: &[
        "vCache was fastest and steadiest there when it flushed by time: write-back policy `timed`. Its waiting time is not published; `age` stays Forebay's.",
        "vCache with at most 50 % of dirty data was faster than with 10 %: dirty-high 50 %.",
        "vCache can leave out sequential streams and the requests of chosen processes; the profile leaves out neither.",
    ],
    foreign: &[],
};
