//! Arrow arrays, read value by value as scalars: the meeting point of the types of Arrow and of PostgreSQL.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    BinaryViewType, Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type,
    DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType, DurationSecondType,
    Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, IntervalDayTimeType,
    IntervalMonthDayNanoType, IntervalYearMonthType, StringViewType, Time32MillisecondType, Time32SecondType,
    Time64MicrosecondType, Time64NanosecondType, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, FixedSizeBinaryArray, GenericByteViewArray};
use arrow_buffer::{
    BooleanBuffer, Buffer, IntervalDayTime, IntervalMonthDayNano, NullBuffer, OffsetBuffer, ScalarBuffer,
    i256,
};
use arrow_schema::{DataType, Field, IntervalUnit, TimeUnit};

/// One value that is not NULL.
#[derive(Clone, Copy)]
pub(super) enum Scalar<'a> {
    Bool(bool),
    Int(i64),
    UInt(u64),
    Float4(f32),
    Float8(f64),
    /// An integer and how many of its digits stand behind the point.
    Decimal(i128, i8),
    LongDecimal(i256, i8),
    /// Valid UTF-8: Arrow's arrays are checked when they are made.
    Text(&'a [u8]),
    Bytes(&'a [u8]),
    /// Sixteen bytes of the extension type `arrow.uuid`.
    Uuid(&'a [u8]),
    /// Days since 1970-01-01.
    Date(i64),
    /// Ticks since midnight.
    Time(i64, Tick),
    /// Ticks since 1970-01-01 00:00:00, in UTC if it has a zone.
    Timestamp(i64, Tick, Zoned),
    Interval(Interval),
    List(&'a Values, usize, usize),
    /// Names and values of the fields, and the row in them.
    Struct(&'a [(String, Values)], usize),
    /// Keys, values and the range of entries.
    Map(&'a Values, &'a Values, usize, usize),
}

/// Whether a timestamp is a moment in time or the reading of a clock without a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Zoned {
    Yes,
    No,
}

/// What an interval consists of; none of the three can be turned into another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Interval {
    pub months: i32,
    pub days: i32,
    pub ticks: i64,
    pub tick: Tick,
}

/// The unit of a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tick {
    Second,
    Milli,
    Micro,
    Nano,
}

impl Tick {
    /// Ticks in a second.
    pub fn per_second(self) -> i64 {
        match self {
            Tick::Second => 1,
            Tick::Milli => 1_000,
            Tick::Micro => 1_000_000,
            Tick::Nano => 1_000_000_000,
        }
    }

    /// Microseconds; `None` if that is not exact or does not fit.
    pub fn micros(self, ticks: i64) -> Option<i64> {
        match self {
            Tick::Nano => (ticks % 1000 == 0).then_some(ticks / 1000),
            _ => ticks.checked_mul(1_000_000 / self.per_second()),
        }
    }

    fn of(unit: TimeUnit) -> Tick {
        match unit {
            TimeUnit::Second => Tick::Second,
            TimeUnit::Millisecond => Tick::Milli,
            TimeUnit::Microsecond => Tick::Micro,
            TimeUnit::Nanosecond => Tick::Nano,
        }
    }
}

/// A column of a batch, or the values inside one. Shares the memory of the array it was made of.
pub(super) struct Values {
    nulls: Option<NullBuffer>,
    data: Data,
}

enum Data {
    Null,
    Bool(BooleanBuffer),
    I8(ScalarBuffer<i8>),
    I16(ScalarBuffer<i16>),
    I32(ScalarBuffer<i32>),
    I64(ScalarBuffer<i64>),
    U8(ScalarBuffer<u8>),
    U16(ScalarBuffer<u16>),
    U32(ScalarBuffer<u32>),
    U64(ScalarBuffer<u64>),
    F32(ScalarBuffer<f32>),
    F64(ScalarBuffer<f64>),
    D32(ScalarBuffer<i32>, i8),
    D64(ScalarBuffer<i64>, i8),
    D128(ScalarBuffer<i128>, i8),
    D256(ScalarBuffer<i256>, i8),
    Date32(ScalarBuffer<i32>),
    Date64(ScalarBuffer<i64>),
    Time32(ScalarBuffer<i32>, Tick),
    Time64(ScalarBuffer<i64>, Tick),
    Timestamp(ScalarBuffer<i64>, Tick, Zoned),
    Duration(ScalarBuffer<i64>, Tick),
    YearMonth(ScalarBuffer<i32>),
    DayTime(ScalarBuffer<IntervalDayTime>),
    MonthDayNano(ScalarBuffer<IntervalMonthDayNano>),
    Bytes(OffsetBuffer<i32>, Buffer, Meaning),
    LargeBytes(OffsetBuffer<i64>, Buffer, Meaning),
    TextView(GenericByteViewArray<StringViewType>),
    BytesView(GenericByteViewArray<BinaryViewType>),
    Fixed(FixedSizeBinaryArray, Meaning),
    Dictionary(Keys, Box<Values>),
    List(OffsetBuffer<i32>, Box<Values>),
    LargeList(OffsetBuffer<i64>, Box<Values>),
    ListView(ScalarBuffer<i32>, ScalarBuffer<i32>, Box<Values>),
    LargeListView(ScalarBuffer<i64>, ScalarBuffer<i64>, Box<Values>),
    FixedList(usize, Box<Values>),
    Struct(Vec<(String, Values)>),
    Map(OffsetBuffer<i32>, Box<(Values, Values)>),
}

/// What bytes stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    Text,
    Bytes,
    Uuid,
}

/// Places in a dictionary.
struct Keys(Vec<u32>);

impl Values {
    /// Reads an array; `field` tells its extension type. `None` for types that cannot be loaded.
    pub fn new(array: &ArrayRef, field: &Field) -> Option<Values> {
        let uuid = field.metadata().get("ARROW:extension:name").is_some_and(|name| name == "arrow.uuid");
        let data = match array.data_type() {
            DataType::Null => Data::Null,
            DataType::Boolean => Data::Bool(array.as_boolean().values().clone()),
            DataType::Int8 => Data::I8(array.as_primitive::<Int8Type>().values().clone()),
            DataType::Int16 => Data::I16(array.as_primitive::<Int16Type>().values().clone()),
            DataType::Int32 => Data::I32(array.as_primitive::<Int32Type>().values().clone()),
            DataType::Int64 => Data::I64(array.as_primitive::<Int64Type>().values().clone()),
            DataType::UInt8 => Data::U8(array.as_primitive::<UInt8Type>().values().clone()),
            DataType::UInt16 => Data::U16(array.as_primitive::<UInt16Type>().values().clone()),
            DataType::UInt32 => Data::U32(array.as_primitive::<UInt32Type>().values().clone()),
            DataType::UInt64 => Data::U64(array.as_primitive::<UInt64Type>().values().clone()),
            DataType::Float16 => {
                let halves = array.as_primitive::<Float16Type>().values();
                Data::F32(halves.iter().map(|half| half.to_f32()).collect())
            }
            DataType::Float32 => Data::F32(array.as_primitive::<Float32Type>().values().clone()),
            DataType::Float64 => Data::F64(array.as_primitive::<Float64Type>().values().clone()),
            DataType::Decimal32(_, scale) => {
                Data::D32(array.as_primitive::<Decimal32Type>().values().clone(), *scale)
            }
            DataType::Decimal64(_, scale) => {
                Data::D64(array.as_primitive::<Decimal64Type>().values().clone(), *scale)
            }
            DataType::Decimal128(_, scale) => {
                Data::D128(array.as_primitive::<Decimal128Type>().values().clone(), *scale)
            }
            DataType::Decimal256(_, scale) => {
                Data::D256(array.as_primitive::<Decimal256Type>().values().clone(), *scale)
            }
            DataType::Date32 => Data::Date32(array.as_primitive::<Date32Type>().values().clone()),
            DataType::Date64 => Data::Date64(array.as_primitive::<Date64Type>().values().clone()),
            DataType::Time32(TimeUnit::Second) => {
                Data::Time32(array.as_primitive::<Time32SecondType>().values().clone(), Tick::Second)
            }
            DataType::Time32(_) => {
                Data::Time32(array.as_primitive_opt::<Time32MillisecondType>()?.values().clone(), Tick::Milli)
            }
            DataType::Time64(TimeUnit::Microsecond) => {
                Data::Time64(array.as_primitive::<Time64MicrosecondType>().values().clone(), Tick::Micro)
            }
            DataType::Time64(_) => {
                Data::Time64(array.as_primitive_opt::<Time64NanosecondType>()?.values().clone(), Tick::Nano)
            }
            DataType::Timestamp(unit, zone) => {
                let zoned = if zone.is_some() { Zoned::Yes } else { Zoned::No };
                Data::Timestamp(timestamp_ticks(array, *unit), Tick::of(*unit), zoned)
            }
            DataType::Duration(unit) => Data::Duration(duration_ticks(array, *unit), Tick::of(*unit)),
            DataType::Interval(IntervalUnit::YearMonth) => {
                Data::YearMonth(array.as_primitive::<IntervalYearMonthType>().values().clone())
            }
            DataType::Interval(IntervalUnit::DayTime) => {
                Data::DayTime(array.as_primitive::<IntervalDayTimeType>().values().clone())
            }
            DataType::Interval(IntervalUnit::MonthDayNano) => {
                Data::MonthDayNano(array.as_primitive::<IntervalMonthDayNanoType>().values().clone())
            }
            DataType::Utf8 => {
                let array = array.as_string::<i32>();
                Data::Bytes(array.offsets().clone(), array.values().clone(), Meaning::Text)
            }
            DataType::LargeUtf8 => {
                let array = array.as_string::<i64>();
                Data::LargeBytes(array.offsets().clone(), array.values().clone(), Meaning::Text)
            }
            DataType::Binary => {
                let array = array.as_binary::<i32>();
                Data::Bytes(array.offsets().clone(), array.values().clone(), Meaning::Bytes)
            }
            DataType::LargeBinary => {
                let array = array.as_binary::<i64>();
                Data::LargeBytes(array.offsets().clone(), array.values().clone(), Meaning::Bytes)
            }
            DataType::Utf8View => Data::TextView(array.as_string_view().clone()),
            DataType::BinaryView => Data::BytesView(array.as_binary_view().clone()),
            DataType::FixedSizeBinary(size) => {
                let meaning = if uuid && *size == 16 { Meaning::Uuid } else { Meaning::Bytes };
                Data::Fixed(array.as_fixed_size_binary().clone(), meaning)
            }
            DataType::Dictionary(_, _) => {
                let dictionary = array.as_any_dictionary();
                let values = Values::new(dictionary.values(), field)?;
                let keys = if dictionary.values().is_empty() {
                    vec![0; array.len()]
                } else {
                    dictionary
                        .normalized_keys()
                        .into_iter()
                        .map(|k| u32::try_from(k).ok())
                        .collect::<Option<_>>()?
                };
                Data::Dictionary(Keys(keys), Box::new(values))
            }
            DataType::List(inner) => {
                let array = array.as_list::<i32>();
                Data::List(array.offsets().clone(), Box::new(Values::new(array.values(), inner)?))
            }
            DataType::LargeList(inner) => {
                let array = array.as_list::<i64>();
                Data::LargeList(array.offsets().clone(), Box::new(Values::new(array.values(), inner)?))
            }
            DataType::ListView(inner) => {
                let array = array.as_list_view::<i32>();
                let values = Box::new(Values::new(array.values(), inner)?);
                Data::ListView(array.offsets().clone(), array.sizes().clone(), values)
            }
            DataType::LargeListView(inner) => {
                let array = array.as_list_view::<i64>();
                let values = Box::new(Values::new(array.values(), inner)?);
                Data::LargeListView(array.offsets().clone(), array.sizes().clone(), values)
            }
            DataType::FixedSizeList(inner, size) => {
                let array = array.as_fixed_size_list();
                Data::FixedList(usize::try_from(*size).ok()?, Box::new(Values::new(array.values(), inner)?))
            }
            DataType::Struct(inner) => {
                let array = array.as_struct();
                let fields = inner
                    .iter()
                    .zip(array.columns())
                    .map(|(field, column)| Some((field.name().clone(), Values::new(column, field)?)));
                Data::Struct(fields.collect::<Option<_>>()?)
            }
            DataType::Map(entries, _) => {
                let DataType::Struct(inner) = entries.data_type() else { return None };
                let array = array.as_map();
                let [key, value] = inner.iter().collect::<Vec<_>>()[..] else { return None };
                let (keys, values) = (Values::new(array.keys(), key)?, Values::new(array.values(), value)?);
                Data::Map(array.offsets().clone(), Box::new((keys, values)))
            }
            DataType::Union(..) | DataType::RunEndEncoded(..) => return None,
        };
        Some(Values { nulls: array.nulls().cloned(), data })
    }

    /// The first list among some values.
    pub fn first_list(&self, mut rows: std::ops::Range<usize>) -> Option<(&Values, usize, usize)> {
        rows.find_map(|i| match self.get(i) {
            Some(Scalar::List(values, start, end)) => Some((values, start, end)),
            _ => None,
        })
    }

    /// Value `i`; `None` is NULL. `i` is less than the length of the array.
    #[inline]
    pub fn get(&self, i: usize) -> Option<Scalar<'_>> {
        if self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(i)) {
            return None;
        }
        Some(match &self.data {
            Data::Null => return None,
            Data::Bool(values) => Scalar::Bool(values.value(i)),
            Data::I8(values) => Scalar::Int(values[i].into()),
            Data::I16(values) => Scalar::Int(values[i].into()),
            Data::I32(values) => Scalar::Int(values[i].into()),
            Data::I64(values) => Scalar::Int(values[i]),
            Data::U8(values) => Scalar::Int(values[i].into()),
            Data::U16(values) => Scalar::Int(values[i].into()),
            Data::U32(values) => Scalar::Int(values[i].into()),
            Data::U64(values) => Scalar::UInt(values[i]),
            Data::F32(values) => Scalar::Float4(values[i]),
            Data::F64(values) => Scalar::Float8(values[i]),
            Data::D32(values, scale) => Scalar::Decimal(values[i].into(), *scale),
            Data::D64(values, scale) => Scalar::Decimal(values[i].into(), *scale),
            Data::D128(values, scale) => Scalar::Decimal(values[i], *scale),
            Data::D256(values, scale) => match values[i].to_i128() {
                Some(value) => Scalar::Decimal(value, *scale),
                None => Scalar::LongDecimal(values[i], *scale),
            },
            Data::Date32(values) => Scalar::Date(values[i].into()),
            Data::Date64(values) => date64(values[i]),
            Data::Time32(values, tick) => Scalar::Time(values[i].into(), *tick),
            Data::Time64(values, tick) => Scalar::Time(values[i], *tick),
            Data::Timestamp(values, tick, zoned) => Scalar::Timestamp(values[i], *tick, *zoned),
            Data::Duration(values, tick) => interval(0, 0, values[i], *tick),
            Data::YearMonth(values) => interval(values[i], 0, 0, Tick::Micro),
            Data::DayTime(values) => interval(0, values[i].days, values[i].milliseconds.into(), Tick::Milli),
            Data::MonthDayNano(values) => {
                interval(values[i].months, values[i].days, values[i].nanoseconds, Tick::Nano)
            }
            // Offsets are never negative and never beyond the values: arrays are checked when they are made.
            Data::Bytes(offsets, bytes, meaning) => {
                scalar(&bytes[offsets[i] as usize..offsets[i + 1] as usize], *meaning)
            }
            Data::LargeBytes(offsets, bytes, meaning) => {
                scalar(&bytes[offsets[i] as usize..offsets[i + 1] as usize], *meaning)
            }
            Data::TextView(array) => Scalar::Text(array.value(i).as_bytes()),
            Data::BytesView(array) => Scalar::Bytes(array.value(i)),
            Data::Fixed(array, meaning) => scalar(array.value(i), *meaning),
            Data::Dictionary(keys, values) => return values.get(keys.0[i] as usize),
            Data::List(offsets, values) => Scalar::List(values, offsets[i] as usize, offsets[i + 1] as usize),
            Data::LargeList(offsets, values) => {
                Scalar::List(values, offsets[i] as usize, offsets[i + 1] as usize)
            }
            Data::ListView(offsets, sizes, values) => {
                Scalar::List(values, offsets[i] as usize, offsets[i] as usize + sizes[i] as usize)
            }
            Data::LargeListView(offsets, sizes, values) => {
                Scalar::List(values, offsets[i] as usize, offsets[i] as usize + sizes[i] as usize)
            }
            Data::FixedList(size, values) => Scalar::List(values, i * size, (i + 1) * size),
            Data::Struct(fields) => Scalar::Struct(fields, i),
            Data::Map(offsets, entries) => {
                Scalar::Map(&entries.0, &entries.1, offsets[i] as usize, offsets[i + 1] as usize)
            }
        })
    }
}

#[inline]
fn scalar(bytes: &[u8], meaning: Meaning) -> Scalar<'_> {
    match meaning {
        Meaning::Text => Scalar::Text(bytes),
        Meaning::Bytes => Scalar::Bytes(bytes),
        Meaning::Uuid => Scalar::Uuid(bytes),
    }
}

fn interval<'a>(months: i32, days: i32, ticks: i64, tick: Tick) -> Scalar<'a> {
    Scalar::Interval(Interval { months, days, ticks, tick })
}

/// Milliseconds that should be whole days. Where they are not they are kept as a timestamp, so that nothing
/// is lost on the way to a column that can hold it.
fn date64<'a>(millis: i64) -> Scalar<'a> {
    const DAY: i64 = 86_400_000;
    match millis % DAY {
        0 => Scalar::Date(millis / DAY),
        _ => Scalar::Timestamp(millis, Tick::Milli, Zoned::No),
    }
}

fn timestamp_ticks(array: &ArrayRef, unit: TimeUnit) -> ScalarBuffer<i64> {
    match unit {
        TimeUnit::Second => array.as_primitive::<TimestampSecondType>().values().clone(),
        TimeUnit::Millisecond => array.as_primitive::<TimestampMillisecondType>().values().clone(),
        TimeUnit::Microsecond => array.as_primitive::<TimestampMicrosecondType>().values().clone(),
        TimeUnit::Nanosecond => array.as_primitive::<TimestampNanosecondType>().values().clone(),
    }
}

fn duration_ticks(array: &ArrayRef, unit: TimeUnit) -> ScalarBuffer<i64> {
    match unit {
        TimeUnit::Second => array.as_primitive::<DurationSecondType>().values().clone(),
        TimeUnit::Millisecond => array.as_primitive::<DurationMillisecondType>().values().clone(),
        TimeUnit::Microsecond => array.as_primitive::<DurationMicrosecondType>().values().clone(),
        TimeUnit::Nanosecond => array.as_primitive::<DurationNanosecondType>().values().clone(),
    }
}
