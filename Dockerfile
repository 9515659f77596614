# The commands alone, in less than 200 MB:
#
#     docker build -t marginlinear .
#     docker run --rm --user "$(id -u):$(id -g)" -v "$PWD:/data" marginlinear margin-train rows rows.model

FROM python:3.14-alpine3.22 AS build
RUN apk add --no-cache gcc musl-dev
COPY . /source
RUN pip install --no-cache-dir --no-compile --only-binary numpy,scipy /source
# What no command reads: tests, pip, what compilers and type checkers take. Libraries stay as they are: those that
# auditwheel has put into the wheels of NumPy and SciPy no longer load once they are stripped.
WORKDIR /usr/local
RUN rm -r include share lib/python3.14/ensurepip lib/python3.14/idlelib lib/python3.14/site-packages/pip* \
    && find lib -type d \( -name tests -o -name __pycache__ \) -prune -exec rm -r {} + \
    && find lib \( -name '*.a' -o -name '*.h' -o -name '*.pxd' -o -name '*.pyi' \) -delete \
    && python -m compileall -q lib/python3.14/site-packages/numpy lib/python3.14/site-packages/marginlinear

FROM alpine:3.22
RUN apk add --no-cache libbz2 libffi xz-libs
COPY --from=build /usr/local /usr/local
RUN --mount=type=bind,source=tools/smoke.py,target=/tools/smoke.py \
    PYTHONDONTWRITEBYTECODE=1 python3 /tools/smoke.py && test "$(du -smx / | cut -f1)" -lt 200
WORKDIR /data
CMD ["margin-train", "--help"]
