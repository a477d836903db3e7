//! The instruments of a volume and of the engines below it.

use forebay_metrics::{Samples, Source, Value, table};

use super::Volume;

impl Source for Volume {
    fn collect(&self, samples: &mut Samples) {
        let (state, publisher) = (&self.rooms.state, &self.rooms.publisher);
        state.troubles.collect(samples);
        state.memory.cache.collect(samples);
        if let Some(log) = state.log() {
            log.instruments().collect(samples);
        }
        publisher.times.collect(samples);
        self.rooms.packs.collect(samples);
        let eager = Value::Gauge(state.eager.waiting() as f64);
        samples.add(&table::QUEUE, ["eager_uploads".into()], eager);
        self.files.read_bytes.collect(samples);
    }
}
