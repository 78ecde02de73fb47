//! How long work is told to end: it looks between two steps, and leaves nothing half done.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether to end. Cloning shares it.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Asks the work to end.
    pub fn ask(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether somebody asked.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
