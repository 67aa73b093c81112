//! Where the time went: the wait events of a load's own backends, sampled over one extra connection, put
//! together with what the client was doing at that moment.
//!
//! # How a moment is counted
//!
//! Fifty times a second the sampler asks the server what each backend of the load waits for, and looks what its
//! lane does ([`Lanes`]). The time since the last look goes to one [`Class`]: a backend that waits for nothing
//! runs or waits for a processor; one that waits for the client is the client's fault while the lane reads or
//! encodes, and the network's while the lane is sending. Shares are shares of *backend time*: the seconds of the
//! load times its connections.
//!
//! Nothing of this needs more than an ordinary role: it sees the wait events of its own backends.
//!
//! [`watch`] does the same for whoever else loads on a server.

mod blockers;
mod class;
mod counters;
mod events;
mod lanes;
mod limit;
mod platform;
mod profile;
mod sampler;
mod series;
pub mod watch;

pub use blockers::Blocker;
pub use class::{Class, ClassTimes};
pub use counters::{Counters, TableIo, WalCounters};
pub use events::WaitEvent;
pub use lanes::{Lane, Lanes, Stage};
pub use limit::Limit;
pub use profile::{ClassShare, ClientShare, EventShare, Profile, setting_bytes};
pub use sampler::{Recorder, SamplerOptions, run};
pub use series::Series;
