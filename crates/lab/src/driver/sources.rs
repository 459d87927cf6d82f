//! Sources of drivers, with their paths below the repository's root: collected by `build.rs`.

include!(concat!(env!("OUT_DIR"), "/sources.rs"));
