use serde::Serialize;

macro_rules! base_types {
    ($($(#[$doc:meta])* $variant:ident = $oid:literal, $name:literal;)*) => {
        /// The base types Inrush knows by OID. OIDs are those of pg_type.dat and never change.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
        #[serde(rename_all = "lowercase")]
        #[allow(missing_docs)]
        pub enum BaseType { $($(#[$doc])* $variant,)* }

        impl BaseType {
            /// Every known base type.
            pub const ALL: &'static [BaseType] = &[$(BaseType::$variant,)*];

            /// The type of this OID.
            pub fn from_oid(oid: u32) -> Option<BaseType> {
                match oid { $($oid => Some(BaseType::$variant),)* _ => None }
            }

            /// pg_type.oid
            pub fn oid(self) -> u32 {
                match self { $(BaseType::$variant => $oid,)* }
            }

            /// The name SQL accepts.
            pub fn sql(self) -> &'static str {
                match self { $(BaseType::$variant => $name,)* }
            }
        }
    };
}

base_types! {
    Bool = 16, "boolean";
    Bytea = 17, "bytea";
    Name = 19, "name";
    Int8 = 20, "bigint";
    Int2 = 21, "smallint";
    Int4 = 23, "integer";
    Text = 25, "text";
    Oid = 26, "oid";
    Json = 114, "json";
    Float4 = 700, "real";
    Float8 = 701, "double precision";
    Macaddr8 = 774, "macaddr8";
    Macaddr = 829, "macaddr";
    Cidr = 650, "cidr";
    Inet = 869, "inet";
    Bpchar = 1042, "character";
    Varchar = 1043, "character varying";
    Date = 1082, "date";
    Time = 1083, "time without time zone";
    Timestamp = 1114, "timestamp without time zone";
    Timestamptz = 1184, "timestamp with time zone";
    Interval = 1186, "interval";
    Timetz = 1266, "time with time zone";
    Numeric = 1700, "numeric";
    Uuid = 2950, "uuid";
    Jsonb = 3802, "jsonb";
}

/// A type of the target as the catalog describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PgType {
    /// pg_type.oid
    pub oid: u32,
    /// Name as SQL accepts it, without type modifier: `integer`, `public.mood`, `text[]`.
    pub name: String,
    /// What it is made of.
    pub kind: TypeKind,
}

/// What a type is made of, as far as an encoder must know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TypeKind {
    /// One of the known base types.
    Base(BaseType),
    /// An enum; its binary form is the label.
    Enum,
    /// A domain over another type; the binary form is the base type's and the server checks the constraints.
    Domain {
        /// The type it is over.
        base: Box<PgType>,
        /// pg_type.typtypmod
        typmod: i32,
    },
    /// An array of another type.
    Array {
        /// The element type.
        element: Box<PgType>,
    },
    /// Anything else (ranges, composites, geometric and extension types): goes as text.
    Other,
}

impl PgType {
    /// A known base type.
    pub fn base(base: BaseType) -> PgType {
        PgType { oid: base.oid(), name: base.sql().to_owned(), kind: TypeKind::Base(base) }
    }

    /// The type under all domains, with the type modifier that applies: a domain's own where the column
    /// has none.
    pub fn under_domains(&self, typmod: i32) -> (&PgType, i32) {
        match &self.kind {
            TypeKind::Domain { base, typmod: domain_typmod } => base.under_domains(*domain_typmod),
            _ => (self, typmod),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oids_round_trip() {
        for ty in BaseType::ALL {
            assert_eq!(BaseType::from_oid(ty.oid()), Some(*ty));
        }
        assert_eq!(BaseType::from_oid(600), None);
    }
}
