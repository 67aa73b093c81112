//! COPY text.
