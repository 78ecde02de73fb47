//! billingd
