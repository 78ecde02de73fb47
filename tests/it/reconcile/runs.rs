//! Runs that are cut short, restored books, look-alikes, and many events.
