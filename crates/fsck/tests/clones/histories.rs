//! Random histories of a volume, its clones and their clones, beside a model: writes, snapshots and their deletions, clones,
//! detachments, clones that are deleted, restores of whole volumes, and collections. After each step every volume is checked, and
//! what it has is compared.

use std::mem;

use super::place::Dice;
use super::*;

/// Most volumes at a time.
const MOST: usize = 4;
/// Files of a volume have these names.
const NAMES: u64 = 5;
const STEPS: usize = 24;

/// A volume, and what it should have.
struct One {
    place: Place,
    files: Files,
    snapshots: BTreeMap<String, Files>,
    /// The snapshots that it needs as a clone: of which volume, and the name.
    needs: Vec<(usize, String)>,
}

struct History {
    dice: Dice,
    expected: Expected,
    volumes: BTreeMap<usize, One>,
    /// Numbers of volumes, snapshots and contents.
    made: usize,
    /// The steps, for the message of a failure.
    steps: Vec<String>,
}

impl History {
    async fn new(seed: u64, expected: Expected) -> History {
        let first = One {
            place: Place::of(expected.clone()).await,
            files: Files::new(),
            snapshots: BTreeMap::new(),
            needs: Vec::new(),
        };
        History {
            dice: Dice(seed),
            expected,
            volumes: [(0, first)].into(),
            made: 1,
            steps: Vec::new(),
        }
    }

    fn next(&mut self) -> usize {
        self.made += 1;
        self.made - 1
    }

    fn any(&mut self, of: usize) -> usize {
        self.dice.below(of as u64) as usize
    }

    /// A random snapshot of a volume.
    fn snapshot_of(&mut self, id: usize) -> Option<String> {
        let names: Vec<String> = self.volumes[&id].snapshots.keys().cloned().collect();
        match names.len() {
            0 => None,
            len => Some(names[self.any(len)].clone()),
        }
    }

    fn is_needed(&self, id: usize, name: &str) -> bool {
        let mut needs = self.volumes.values().flat_map(|one| &one.needs);
        needs.any(|(of, needed)| *of == id && needed == name)
    }

    /// A random step. Returns the volume that it has changed; none if the step was impossible.
    async fn step(&mut self) -> Option<usize> {
        let ids: Vec<usize> = self.volumes.keys().copied().collect();
        let id = ids[self.any(ids.len())];
        match self.any(13) {
            0..4 => self.write(id).await,
            4..6 => self.snapshot(id).await,
            6..8 => return self.make_clone(id).await,
            8 => return self.detach(id).await,
            9 => return self.delete_clone(id).await,
            10 => return self.delete_snapshot(id).await,
            11 => return self.restore(id).await,
            _ => self.collect(id).await,
        }
        Some(id)
    }

    async fn write(&mut self, id: usize) {
        let mut files = mem::take(&mut self.volumes.get_mut(&id).unwrap().files);
        let volume = opened(&self.volumes[&id].place).await;
        for _ in 0..1 + self.any(3) {
            let name = format!("file-{}", self.dice.below(NAMES));
            let seed = self.next() as u64;
            let is_there = files.contains_key(&name);
            let len = match (is_there, self.any(2)) {
                // Overwritten, with the same length.
                (true, 0) => files[&name].len(),
                _ => {
                    if is_there {
                        remove(&volume, &mut files, &name).await;
                    }
                    1 + self.any(700_000)
                }
            };
            if self.any(4) > 0 || files.contains_key(&name) {
                put(&volume, &mut files, &name, seed, len).await;
            }
            self.steps.push(format!("{id}: {name}, {len} bytes"));
        }
        close(volume).await;
        self.volumes.get_mut(&id).unwrap().files = files;
    }

    async fn snapshot(&mut self, id: usize) {
        let name = format!("s{}", self.next());
        let volume = opened(&self.volumes[&id].place).await;
        volume.make_snapshot(&name, "a test").await.unwrap();
        close(volume).await;
        self.steps.push(format!("{id}: snapshot {name}"));
        let one = self.volumes.get_mut(&id).unwrap();
        one.snapshots.insert(name, one.files.clone());
    }

    async fn make_clone(&mut self, id: usize) -> Option<usize> {
        let name = self.snapshot_of(id)?;
        if self.volumes.len() == MOST {
            return None;
        }
        let made = self.next();
        let source = &self.volumes[&id];
        let place = empty(&self.expected);
        clone(&source.place, &place, &name).await.unwrap();
        self.steps.push(format!("{made}: clone of {name} of {id}"));
        let mut needs = source.needs.clone();
        needs.push((id, name.clone()));
        let one = One {
            place,
            files: source.snapshots[&name].clone(),
            snapshots: BTreeMap::new(),
            needs,
        };
        self.volumes.insert(made, one);
        Some(made)
    }

    async fn detach(&mut self, id: usize) -> Option<usize> {
        let one = self.volumes.get_mut(&id)?;
        let done = detached(&one.place).await;
        match mem::take(&mut one.needs).is_empty() {
            true => assert!(matches!(done, Err(CloneError::NoClone(_)))),
            false => drop(done.unwrap()),
        }
        self.steps.push(format!("{id}: detached"));
        Some(id)
    }

    /// Deletes a clone of which nothing was cloned, and has its sources forget it.
    async fn delete_clone(&mut self, id: usize) -> Option<usize> {
        let mut needs = self.volumes.values().flat_map(|one| &one.needs);
        if self.volumes[&id].needs.is_empty() || needs.any(|(of, _)| *of == id) {
            return None;
        }
        let gone = self.volumes.remove(&id)?;
        std::fs::remove_dir_all(gone.place.bucket()).unwrap();
        for (of, _) in &gone.needs {
            let Some(source) = self.volumes.get(of) else {
                continue;
            };
            let store = source.place.store().await;
            let descriptor = VolumeDescriptor::load(&store.store, &store.root).await;
            let holds = holds::list(&store, descriptor.unwrap().volume).await;
            for hold in holds.unwrap() {
                if hold.standing == Standing::Missing {
                    holds::remove(&store, &hold).await.unwrap();
                }
            }
        }
        self.steps.push(format!("{id}: deleted"));
        gone.needs.last().map(|(of, _)| *of)
    }

    async fn delete_snapshot(&mut self, id: usize) -> Option<usize> {
        let name = self.snapshot_of(id)?;
        let is_needed = self.is_needed(id, &name);
        let one = self.volumes.get_mut(&id)?;
        let volume = opened(&one.place).await;
        let deleted = volume.delete_snapshot(&name).await;
        close(volume).await;
        match is_needed {
            true => assert!(matches!(deleted, Err(SnapshotError::Cloned { .. }))),
            false => {
                deleted.unwrap();
                one.snapshots.remove(&name);
            }
        }
        self.steps.push(format!("{id}: {name} is to be deleted"));
        Some(id)
    }

    async fn restore(&mut self, id: usize) -> Option<usize> {
        let name = self.snapshot_of(id)?;
        let before = format!("b{}", self.next());
        let one = self.volumes.get_mut(&id)?;
        restored(&one.place, &name, &before).await.unwrap();
        let files = one.snapshots[&name].clone();
        one.snapshots
            .insert(before, mem::replace(&mut one.files, files));
        self.steps.push(format!("{id}: restored to {name}"));
        Some(id)
    }

    async fn collect(&mut self, id: usize) {
        let one = &self.volumes[&id];
        let volume = opened(&one.place).await;
        match one.needs.is_empty() {
            true => settled(&one.place, &volume).await,
            // Its accounts are also of packs that lie at its sources.
            false => {
                for mode in 0..4 {
                    let set = SetAttributes {
                        mode: Some(0o700 + mode),
                        ..SetAttributes::default()
                    };
                    volume.setattr(&WHO, Inode::ROOT, &set, None).await.unwrap();
                    volume.flush().await.unwrap();
                }
            }
        }
        close(volume).await;
        self.steps.push(format!("{id}: collected"));
    }

    /// Compares what a volume has, now and in its snapshots.
    async fn compare(&self, id: usize) {
        let one = &self.volumes[&id];
        let volume = opened(&one.place).await;
        compare(&volume, &one.files).await;
        let listed = volume.snapshots().await.unwrap();
        assert_eq!(listed.len(), one.snapshots.len());
        for (name, files) in &one.snapshots {
            compare(&*volume.open_snapshot(name).await.unwrap(), files).await;
        }
        close(volume).await;
    }

    async fn run(&mut self) {
        while self.steps.len() < STEPS {
            let Some(changed) = self.step().await else {
                continue;
            };
            for one in self.volumes.values() {
                is_sound(&one.place).await;
            }
            let ids: Vec<usize> = self.volumes.keys().copied().collect();
            let other = ids[self.any(ids.len())];
            self.compare(changed).await;
            self.compare(other).await;
        }
        for id in self.volumes.keys() {
            self.compare(*id).await;
        }
    }
}

/// Names the steps if a test fails.
impl Drop for History {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("after {:#?}", self.steps);
        }
    }
}

fn histories(seeds: std::ops::Range<u64>, expected: Expected) {
    for seed in seeds {
        let expected = expected.clone();
        run(move || async move {
            let mut history =
                History::new(0x51_7c_c1_b7_27_22_0a_95 ^ (seed << 20), expected).await;
            eprintln!("seed {seed}");
            Box::pin(history.run()).await;
        });
    }
}

#[test]
fn clones_and_restored_volumes_have_what_a_model_has_plain() {
    histories(0..3, Expected::NotSealed);
}

#[test]
fn clones_and_restored_volumes_have_what_a_model_has_sealed() {
    histories(3..5, key_file(5));
}

#[test]
#[ignore = "a long run, by itself"]
fn measured_clones_and_restored_volumes_have_what_a_model_has_for_long() {
    histories(100..400, Expected::NotSealed);
}
