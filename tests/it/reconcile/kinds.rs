//! Each kind of finding comes, and goes.
