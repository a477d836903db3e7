//! The values of instruments when they are read.

use std::borrow::Cow;

use crate::{Counter, Family, Gauge, Histogram, Observed};

/// A value that was read.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Of a counter.
    Counter(f64),
    /// Of a gauge.
    Gauge(f64),
    /// Of a histogram.
    Histogram(Observed),
}

/// One value of a family.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Which metric it is.
    pub family: &'static Family,
    /// Values of the family's labels, in their order.
    pub labels: Vec<Cow<'static, str>>,
    /// The value.
    pub value: Value,
}

/// Something that keeps instruments.
pub trait Source: Send + Sync {
    /// Adds the values of all its instruments. Takes no lock that calls of clients wait for.
    fn collect(&self, samples: &mut Samples);
}

/// Values that were read.
#[derive(Clone, Debug, Default)]
pub struct Samples(Vec<Sample>);

impl Samples {
    /// The values of several sources.
    pub fn of<'a>(sources: impl IntoIterator<Item = &'a dyn Source>) -> Samples {
        let mut samples = Samples::default();
        for source in sources {
            source.collect(&mut samples);
        }
        samples
    }

    /// Adds the value of a counter without labels.
    pub fn counter(&mut self, family: &'static Family, counter: &Counter) {
        self.add(family, [], Value::Counter(counter.get() as f64));
    }

    /// Adds the value of a gauge without labels.
    pub fn gauge(&mut self, family: &'static Family, gauge: &Gauge) {
        self.add(family, [], Value::Gauge(gauge.get() as f64));
    }

    /// Adds the observations of a histogram without labels.
    pub fn histogram(&mut self, family: &'static Family, histogram: &Histogram) {
        self.add(family, [], Value::Histogram(histogram.observed()));
    }

    /// Adds the observations of a histogram with one label, if there are any.
    pub fn histogram_of(
        &mut self,
        family: &'static Family,
        label: &'static str,
        histogram: &Histogram,
    ) {
        let observed = histogram.observed();
        if observed.count() > 0 {
            self.add(family, [label.into()], Value::Histogram(observed));
        }
    }

    /// Adds the value of a counter with one label.
    pub fn counter_of(&mut self, family: &'static Family, label: &'static str, counter: &Counter) {
        let value = Value::Counter(counter.get() as f64);
        self.add(family, [label.into()], value);
    }

    /// Adds a value with one label value for each label of its family.
    pub fn add<const N: usize>(
        &mut self,
        family: &'static Family,
        labels: [Cow<'static, str>; N],
        value: Value,
    ) {
        debug_assert_eq!(family.labels.len(), N, "{}", family.name);
        self.0.push(Sample {
            family,
            labels: labels.into(),
            value,
        });
    }

    /// All values, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = &Sample> {
        self.0.iter()
    }

    /// The value of the counter or gauge with this name in the [table](crate::table) and these label values; the number
    /// of observations for a histogram. `None` if there is no such value.
    pub fn number(&self, name: &str, labels: &[&str]) -> Option<f64> {
        let mut found = self.0.iter();
        let sample = found.find(|sample| sample.family.name == name && sample.labels == labels)?;
        Some(match &sample.value {
            Value::Counter(value) | Value::Gauge(value) => *value,
            Value::Histogram(observed) => observed.count() as f64,
        })
    }
}
