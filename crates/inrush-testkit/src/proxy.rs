//! A proxy that breaks connections at chosen moments.
