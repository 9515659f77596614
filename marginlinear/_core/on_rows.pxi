from marginlinear._core.rows cimport CSR32, CSR64, DENSE32, DENSE64, EQUAL64, NARROW32, NARROW64, Rows

# Of an engine, which has a task_t and a `perform_on(engine_t self, const rows_t* X, task_t* task)` that is compiled
# for each storage, and says once who it is: `ctypedef fused engine_t: ITS_CLASS`.


cdef void perform(engine_t self, Rows rows, task_t* task) noexcept nogil:
    """The one place where the storage of the rows is looked at: features or inner products."""
    if rows.storage == CSR64:
        perform_on(self, &rows.csr64, task)
    elif rows.storage == CSR32:
        perform_on(self, &rows.csr32, task)
    elif rows.storage == NARROW64:
        perform_on(self, &rows.narrow64, task)
    elif rows.storage == NARROW32:
        perform_on(self, &rows.narrow32, task)
    elif rows.storage == EQUAL64:
        perform_on(self, &rows.equal64, task)
    elif rows.storage == DENSE64:
        perform_on(self, &rows.dense64, task)
    elif rows.storage == DENSE32:
        perform_on(self, &rows.dense32, task)
    else:
        perform_on(self, &rows.gram, task)
