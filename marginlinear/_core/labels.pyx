"""Labels of a data file as classes 0..k-1, without NumPy."""

from array import array

from libc.stdint cimport int32_t, int64_t

from marginlinear._core.buffer import Buffer

ctypedef fused number:
    int64_t
    double


def classes_of(labels):
    """(the different labels in ascending order, a list; the place of each row's label there, an int32 Buffer).

    Parameters
    ----------
    labels : int64 or float64 array or memoryview, none of them nan, or list of str
    """
    cdef int32_t[::1] codes
    cdef Py_ssize_t i
    words = isinstance(labels, list)
    classes = sorted(set(labels if words else labels.tolist()))
    found = Buffer("i", len(labels))
    codes = found
    if words:
        places = {label: place for place, label in enumerate(classes)}
        for i in range(codes.shape[0]):
            codes[i] = places[labels[i]]
    # Chosen here: Cython's own choice for a function that Python calls imports NumPy.
    elif memoryview(labels).format == "d":
        search[double](labels, array("d", classes), codes)
    else:
        search[int64_t](labels, array("q", classes), codes)
    return classes, found


def taken(values, const int32_t[::1] places):
    """values[places_i] for each i, a float64 Buffer; the values are a list of numbers."""
    cdef const double[::1] table = array("d", values)
    cdef Py_ssize_t i
    found = Buffer("d", places.shape[0])
    cdef double[::1] out = found
    with nogil:
        for i in range(places.shape[0]):
            out[i] = table[places[i]]
    return found


cdef void search(const number[::1] labels, const number[::1] classes, int32_t[::1] codes) noexcept:
    """codes_i = place of labels_i in the ascending classes, where it is."""
    cdef Py_ssize_t i
    cdef int32_t low, high, middle
    with nogil:
        for i in range(labels.shape[0]):
            low, high = 0, <int32_t> classes.shape[0] - 1
            while low < high:
                middle = low + (high - low) // 2
                if classes[middle] < labels[i]:
                    low = middle + 1
                else:
                    high = middle
            codes[i] = low
