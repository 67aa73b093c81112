//! One file per family of types.
