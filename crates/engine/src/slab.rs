//! A table of operations in progress. Each value has a small id, so that steady state allocates
//! nothing.

use std::marker::PhantomData;

/// The id of a value in a [`Slab`].
pub trait SlabId: Copy {
    /// The id of a place.
    fn new(index: u32) -> Self;

    /// The place.
    fn index(self) -> u32;
}

impl SlabId for u32 {
    fn new(index: u32) -> u32 {
        index
    }

    fn index(self) -> u32 {
        self
    }
}

/// A table whose ids are plain numbers.
pub type Slots<T> = Slab<u32, T>;

/// A table that gives each value an id and uses ids again.
#[derive(Debug)]
pub struct Slab<I, T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
    ids: PhantomData<I>,
}

impl<I, T> Default for Slab<I, T> {
    fn default() -> Self {
        Slab {
            places: Vec::new(),
            free: Vec::new(),
            ids: PhantomData,
        }
    }
}

impl<I: SlabId, T> Slab<I, T> {
    /// Stores a value and gives it an id.
    pub fn insert(&mut self, value: T) -> I {
        if let Some(index) = self.free.pop() {
            self.places[index as usize] = Some(value);
            return I::new(index);
        }
        self.places.push(Some(value));
        I::new((self.places.len() - 1) as u32)
    }

    /// The value of this id.
    #[must_use]
    pub fn get(&self, id: I) -> Option<&T> {
        self.places.get(id.index() as usize)?.as_ref()
    }

    /// The value of this id, to change.
    pub fn get_mut(&mut self, id: I) -> Option<&mut T> {
        self.places.get_mut(id.index() as usize)?.as_mut()
    }

    /// The value of an id that is known to be in use, to change.
    ///
    /// # Panics
    /// If there is none: ids are the engine's own.
    pub fn at(&mut self, id: I) -> &mut T {
        self.places[id.index() as usize]
            .as_mut()
            .expect("an id in use")
    }

    /// Replaces the value of this id by what `change` makes of it.
    pub fn change(&mut self, id: I, change: impl FnOnce(T) -> T) {
        let place = &mut self.places[id.index() as usize];
        *place = place.take().map(change);
    }

    /// Takes the value out and frees its id.
    pub fn remove(&mut self, id: I) -> Option<T> {
        let value = self.places.get_mut(id.index() as usize)?.take()?;
        self.free.push(id.index());
        Some(value)
    }

    /// All values.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.places.iter().flatten()
    }

    /// All values, to change.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.places.iter_mut().flatten()
    }

    /// All ids in use, lowest first, and ids of places that are free.
    pub fn ids(&self) -> impl Iterator<Item = I> + use<I, T> {
        (0..self.places.len() as u32).map(I::new)
    }

    /// The number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
