//! COPY binary.
