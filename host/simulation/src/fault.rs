//! The kinds of faults of a simulation: a story counts how often each occurred.

use davit_sim::fault::{Action, Refusal, WatchFault};

/// Defines the kinds and the list of all of them.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident,)*) => {
        /// A kind of fault. It counts where it takes effect.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum FaultKind {
            $($(#[$doc])* $kind,)*
        }

        impl FaultKind {
            /// Every kind.
            pub const ALL: &[Self] = &[$(Self::$kind,)*];
        }
    };
}

kinds! {
    /// A request gets no connection.
    NoConnection,
    /// A request takes longer to the server than the host waits.
    LateRequest,
    /// The connection closes before the server reads the request.
    CloseBefore,
    /// The server executes the request, and the answer is lost.
    CloseAfter,
    /// The answer breaks off.
    CutBody,
    /// The answer is late.
    LateAnswer,
    /// 409.
    Conflict,
    /// 422.
    Invalid,
    /// 429.
    TooManyRequests,
    /// 500.
    InternalError,
    /// 503.
    Unavailable,
    /// 403: an account lacks its permissions, or the host may not impersonate it.
    Forbidden,
    /// A watch ends.
    WatchEnd,
    /// The connection of a watch breaks.
    WatchAbort,
    /// A watch delivers nothing any more.
    WatchSilence,
    /// A watch delivers no bookmarks any more.
    WatchWithoutBookmarks,
    /// A watch ends, and the server has dropped the history.
    WatchExpiry,
    /// A watch delivers an event after seconds.
    LateEvent,
    /// Discovery fails.
    DiscoveryFailure,
    /// Discovery does not reach a group version.
    UnreachedGroup,
    /// Discovery lacks a resource.
    UnlistedResource,
    /// A write of a record fails.
    RecordWriteFailure,
    /// A write of a record succeeds, and its answer is lost.
    LostRecordAnswer,
    /// A request for a record, or its answer, is late.
    LateRecord,
    /// A read of a record fails.
    RecordReadFailure,
    /// A load of a revision fails because the machine is busy.
    LoadFailure,
    /// A load of a revision fails because the source of its module is away.
    MissingModule,
    /// The journal takes no copy of an object.
    CopyFailure,
    /// The disk has a copy of an object after a while.
    LateCopy,
    /// A call into a guest traps.
    Trap,
    /// The host crashes.
    Crash,
    /// The host crashes after one of its effects.
    CrashAfterEffect,
    /// The host's machine starts again.
    Reboot,
    /// The host's wall clock jumps.
    ClockJump,
    /// A host loses the lease of a controller.
    LostLeadership,
    /// One of several hosts stops.
    Stop,
    /// The process of one of several hosts is suspended.
    Suspension,
    /// The network loses a request of one of several hosts.
    LostRequest,
    /// The network loses an answer to one of several hosts.
    LostAnswer,
}

impl FaultKind {
    /// Whether a simulation of so many hosts can have this fault.
    #[must_use]
    pub fn is_possible(self, hosts: usize) -> bool {
        match self {
            Self::Stop | Self::Suspension | Self::LostRequest | Self::LostAnswer => hosts > 1,
            _ => true,
        }
    }

    pub(crate) fn of_request(action: &Action) -> Option<Self> {
        Some(match action {
            Action::Delay(_) | Action::Busy(_) => Self::LateAnswer,
            Action::CloseBefore => Self::CloseBefore,
            Action::CloseAfter => Self::CloseAfter,
            Action::CutBody(_) => Self::CutBody,
            Action::Refuse(Refusal::Conflict) => Self::Conflict,
            Action::Refuse(Refusal::Forbidden) => Self::Forbidden,
            Action::Refuse(Refusal::Invalid) => Self::Invalid,
            Action::Refuse(Refusal::TooManyRequests(_)) => Self::TooManyRequests,
            Action::Refuse(Refusal::InternalError) => Self::InternalError,
            Action::Refuse(Refusal::Unavailable) => Self::Unavailable,
            Action::Watch(..) => return None,
        })
    }

    pub(crate) fn of_watch(fault: WatchFault) -> Self {
        match fault {
            WatchFault::End => Self::WatchEnd,
            WatchFault::Abort => Self::WatchAbort,
            WatchFault::Silence => Self::WatchSilence,
            WatchFault::NoBookmarks => Self::WatchWithoutBookmarks,
            WatchFault::Expire => Self::WatchExpiry,
            WatchFault::Delay(_) => Self::LateEvent,
        }
    }
}
