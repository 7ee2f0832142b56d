package penstock.spike;

import java.io.IOException;
import java.io.Serializable;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.*;
import java.util.stream.Stream;
import java.util.zip.CRC32C;
import org.apache.arrow.flatbuf.DictionaryBatch;
import org.apache.arrow.flatbuf.KeyValue;
import org.apache.arrow.flatbuf.Message;
import org.apache.arrow.flatbuf.RecordBatch;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.ipc.message.ArrowFieldNode;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.connector.catalog.*;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.*;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.*;
import org.apache.spark.sql.util.ArrowUtils;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.sql.vectorized.*;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * A reader of the log inside the JVM, to measure what one could do; see docs/log-format.md.
 *
 * <p>Segments of format 2 of a folder, the columns that Spark asks for, as columnar batches. With
 * the option `topic`, only row groups that have this topic. All bytes that are read are checked.
 */
public final class ArrowLogSource implements TableProvider {
  static final StructType SCHEMA =
      new StructType()
          .add("key", DataTypes.BinaryType, true)
          .add("value", DataTypes.BinaryType, false)
          .add("topic", DataTypes.StringType, false)
          .add("partition", DataTypes.IntegerType, false)
          .add("offset", DataTypes.LongType, false)
          .add("timestamp", DataTypes.TimestampType, false)
          .add("timestampType", DataTypes.IntegerType, false)
          .add("headers", StructType.fromDDL(
              "headers array<struct<key: string, value: binary>>").apply(0).dataType(), true)
          .add("protocol", DataTypes.StringType, false)
          .add("kind", DataTypes.StringType, false)
          .add("sender", DataTypes.StringType, false)
          .add("created", DataTypes.TimestampType, true)
          .add("correlation", DataTypes.StringType, true)
          .add("status", DataTypes.IntegerType, true)
          .add("message_id", DataTypes.StringType, false);

  /** Number of the first flattened buffer of each column of SCHEMA. */
  static final int[] FIRST_BUFFER = {0, 3, 6, 8, 10, 12, 14, 16, 25, 27, 29, 31, 33, 36, 38, 41};

  /** Number of the first node of each column: `headers` has four. */
  static final int[] FIRST_NODE = {0, 1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 14, 15, 16, 17};

  @Override public StructType inferSchema(CaseInsensitiveStringMap options) { return SCHEMA; }

  @Override
  public Table getTable(StructType schema, Transform[] by, Map<String, String> options) {
    return new LogTable();
  }

  static final class LogTable implements Table, SupportsRead {
    @Override public String name() { return "penstock"; }

    @SuppressWarnings("deprecation")
    @Override public StructType schema() { return SCHEMA; }
    @Override public Set<TableCapability> capabilities() { return Set.of(TableCapability.BATCH_READ); }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      return new LogScan(options.get("path"), options.get("topic"));
    }
  }

  /** A run of row groups of one segment. */
  record Piece(String segment, long[] starts, long end) implements Serializable {}

  record Task(Piece[] pieces) implements InputPartition {}

  static final class LogScan implements ScanBuilder, Scan, Batch, SupportsPushDownRequiredColumns {
    private final String path;
    private final String topic;
    private StructType columns = SCHEMA;

    LogScan(String path, String topic) { this.path = path; this.topic = topic; }

    @Override public void pruneColumns(StructType required) { columns = required; }
    @Override public Scan build() { return this; }
    @Override public StructType readSchema() { return columns; }
    @Override public Batch toBatch() { return this; }

    @Override
    public InputPartition[] planInputPartitions() {
      List<Piece> groups = new ArrayList<>();
      try (Stream<Path> files = Files.list(Path.of(path, "log", "0"))) {
        for (Path file : files.filter(f -> f.toString().endsWith(".arrows")).sorted().toList()) {
          groups.addAll(rowGroups(file));
        }
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
      int count = Math.min(SparkSession.active().sparkContext().defaultParallelism(), groups.size());
      InputPartition[] tasks = new InputPartition[count];
      for (int task = 0; task < count; task++) {
        int first = groups.size() * task / count;
        int last = groups.size() * (task + 1) / count;
        tasks[task] = new Task(groups.subList(first, last).toArray(new Piece[0]));
      }
      return tasks;
    }

    private List<Piece> rowGroups(Path file) throws IOException {
      List<Piece> found = new ArrayList<>();
      try (FileChannel channel = FileChannel.open(file, StandardOpenOption.READ)) {
        long position = Segment.skip(channel, Segment.skip(channel, Segment.skip(channel, 0)));
        while (position + 16 < channel.size()) {
          long senders = Segment.skip(channel, position);
          long record = Segment.skip(channel, senders);
          long end = Segment.skip(channel, record);
          if (topic == null || Segment.words(channel, position).contains(topic)) {
            found.add(new Piece(file.toString(), new long[] {position, senders, record}, end));
          }
          position = end;
        }
      }
      return found;
    }

    @Override public PartitionReaderFactory createReaderFactory() { return new Factory(columns); }
  }

  record Factory(StructType columns) implements PartitionReaderFactory {
    @Override
    public PartitionReader<InternalRow> createReader(InputPartition partition) {
      throw new UnsupportedOperationException("only batches");
    }

    @Override
    public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition partition) {
      return new GroupReader(columns, ((Task) partition).pieces());
    }

    @Override public boolean supportColumnarReads(InputPartition partition) { return true; }
  }

  /** Messages of a segment. */
  static final class Segment {
    static ByteBuffer read(FileChannel channel, long start, long size) throws IOException {
      ByteBuffer buffer = ByteBuffer.allocate((int) size).order(ByteOrder.LITTLE_ENDIAN);
      fill(channel, start, buffer);
      return buffer.flip();
    }

    static void fill(FileChannel channel, long start, ByteBuffer buffer) throws IOException {
      while (buffer.hasRemaining()) {
        int count = channel.read(buffer, start);
        if (count < 0) throw new IOException("the segment ends inside a row group");
        start += count;
      }
    }

    static ByteBuffer metadata(FileChannel channel, long start) throws IOException {
      int length = read(channel, start, 8).getInt(4);
      return read(channel, start + 8, length);
    }

    static long skip(FileChannel channel, long start) throws IOException {
      ByteBuffer metadata = metadata(channel, start);
      return start + 8 + metadata.limit() + Message.getRootAsMessage(metadata).bodyLength();
    }

    /** The words of the dictionary at a position. */
    static List<String> words(FileChannel channel, long start) throws IOException {
      ByteBuffer metadata = metadata(channel, start);
      Message message = Message.getRootAsMessage(metadata);
      RecordBatch batch = ((DictionaryBatch) message.header(new DictionaryBatch())).data();
      ByteBuffer body = read(channel, start + 8 + metadata.limit(), message.bodyLength());
      int ends = (int) batch.buffers(1).offset();
      int data = (int) batch.buffers(2).offset();
      List<String> words = new ArrayList<>();
      for (int word = 0; word < batch.length(); word++) {
        int first = body.getInt(ends + 4 * word);
        int size = body.getInt(ends + 4 * word + 4) - first;
        words.add(new String(body.array(), data + first, size, StandardCharsets.UTF_8));
      }
      return words;
    }
  }

  /** Reads row groups; each is one batch. */
  static final class GroupReader implements PartitionReader<ColumnarBatch> {
    private final BufferAllocator allocator =
        ArrowUtils.rootAllocator().newChildAllocator("penstock", 0, Long.MAX_VALUE);
    private final StructType columns;
    private final Piece[] pieces;
    private int next = 0;
    private String open = "";
    private FileChannel channel;
    private List<String> protocols;
    private List<String> kinds;
    private ColumnarBatch batch;

    GroupReader(StructType columns, Piece[] pieces) { this.columns = columns; this.pieces = pieces; }

    @Override
    public boolean next() throws IOException {
      if (batch != null) batch.close();
      batch = null;
      if (next == pieces.length) return false;
      batch = read(pieces[next++]);
      return true;
    }

    @Override public ColumnarBatch get() { return batch; }

    @Override
    public void close() throws IOException {
      if (batch != null) batch.close();
      if (channel != null) channel.close();
      allocator.close();
    }

    private void open(String segment) throws IOException {
      if (!segment.equals(open)) {
        if (channel != null) channel.close();
        channel = FileChannel.open(Path.of(segment), StandardOpenOption.READ);
        long start = Segment.skip(channel, 0);
        protocols = Segment.words(channel, start);
        kinds = Segment.words(channel, Segment.skip(channel, start));
        open = segment;
      }
    }

    private ColumnarBatch read(Piece piece) throws IOException {
      open(piece.segment());
      long record = piece.starts()[2];
      int length = Segment.read(channel, record, 8).getInt(4);
      ByteBuffer metadata = Segment.read(channel, record, 8 + length);
      Message message = Message.getRootAsMessage(metadata.slice(8, length).order(ByteOrder.LITTLE_ENDIAN));
      RecordBatch header = (RecordBatch) message.header(new RecordBatch());
      String sums = "";
      long zeros = 0;
      for (int pair = 0; pair < message.customMetadataLength(); pair++) {
        KeyValue each = message.customMetadata(pair);
        switch (each.key()) {
          case "penstock.checksums" -> sums = each.value();
          case "penstock.zeros" -> zeros = Long.parseLong(each.value());
          case "penstock.crc32c" -> {
            ByteBuffer place = each.valueAsByteBuffer();
            byte[] copy = metadata.array().clone();
            Arrays.fill(copy, 8 + place.position(), 16 + place.position(), (byte) '0');
            check(ByteBuffer.wrap(copy), each.value(), "the metadata");
          }
          default -> {}
        }
      }
      Group group = new Group(piece, header, sums, zeros, record + 8 + length);
      ColumnVector[] vectors = new ColumnVector[columns.length()];
      for (int column = 0; column < vectors.length; column++) {
        vectors[column] = column(group, SCHEMA.fieldIndex(columns.apply(column).name()));
      }
      return new ColumnarBatch(vectors, (int) header.length());
    }

    record Group(Piece piece, RecordBatch header, String sums, long zeros, long body) {
      String sum(int number) {
        return sums.substring(8 * number, 8 * number + 8);
      }
    }

    private ColumnVector column(Group group, int column) throws IOException {
      String name = SCHEMA.apply(column).name();
      List<ArrowBuf> buffers = new ArrayList<>();
      for (int number = FIRST_BUFFER[column]; number < FIRST_BUFFER[column + 1]; number++) {
        buffers.add(buffer(group, number));
      }
      switch (name) {
        case "topic", "sender":
          long start = group.piece().starts()[name.equals("topic") ? 0 : 1];
          long end = group.piece().starts()[name.equals("topic") ? 1 : 2];
          check(Segment.read(channel, start, end - start), group.sum(name.equals("topic") ? 0 : 1), name);
          return new WordColumn(buffers.get(1), 2, Segment.words(channel, start));
        case "protocol":
          return new WordColumn(buffers.get(1), 1, protocols);
        case "kind":
          return new WordColumn(buffers.get(1), 1, kinds);
        default:
          Field field = ArrowUtils.toArrowField(
              name, SCHEMA.apply(column).dataType(), true, "UTC", false,
              Metadata.empty(), false);
          FieldVector vector = field.createVector(allocator);
          load(vector, group.header(), new int[] {FIRST_NODE[column]}, buffers);
          return new ArrowColumnVector(vector);
      }
    }

    private static void load(FieldVector vector, RecordBatch header, int[] node, List<ArrowBuf> buffers) {
      int count = vector.getField().getChildren().isEmpty()
          ? (vector instanceof org.apache.arrow.vector.BaseVariableWidthVector ? 3 : 2)
          : (vector instanceof org.apache.arrow.vector.complex.StructVector ? 1 : 2);
      List<ArrowBuf> own = new ArrayList<>(buffers.subList(0, count));
      buffers.subList(0, count).clear();
      vector.loadFieldBuffers(
          new ArrowFieldNode(header.nodes(node[0]).length(), header.nodes(node[0]).nullCount()), own);
      own.forEach(buffer -> buffer.getReferenceManager().release());
      node[0]++;
      for (FieldVector child : vector.getChildrenFromFields()) {
        load(child, header, node, buffers);
      }
    }

    private ArrowBuf buffer(Group group, int number) throws IOException {
      var place = group.header().buffers(number);
      long size = (place.length() + 7) / 8 * 8;
      ArrowBuf buffer = allocator.buffer(size);
      if (place.length() == 0) return buffer;
      if (place.offset() + size <= group.zeros()) {
        buffer.setZero(0, size);
      } else {
        Segment.fill(channel, group.body() + place.offset(), buffer.nioBuffer(0, (int) size));
        check(buffer.nioBuffer(0, (int) size), group.sum(2 + number), "buffer " + number);
      }
      buffer.writerIndex(place.length());
      return buffer;
    }

    private static void check(ByteBuffer bytes, String expected, String part) throws IOException {
      CRC32C sum = new CRC32C();
      sum.update(bytes);
      if (sum.getValue() != Long.parseLong(expected, 16)) {
        throw new IOException("the checksum of " + part + " is wrong");
      }
    }
  }

  /** A column of words of a dictionary: no word is copied. */
  static final class WordColumn extends ColumnVector {
    private ArrowBuf indices;
    private final int width;
    private final UTF8String[] words;

    WordColumn(ArrowBuf indices, int width, List<String> words) {
      super(DataTypes.StringType);
      this.indices = indices;
      this.width = width;
      this.words = words.stream().map(UTF8String::fromString).toArray(UTF8String[]::new);
    }

    @Override
    public void close() {  // Spark may close a batch before its reader does
      if (indices != null) {
        indices.getReferenceManager().release();
        indices = null;
      }
    }

    @Override public boolean hasNull() { return false; }
    @Override public int numNulls() { return 0; }
    @Override public boolean isNullAt(int row) { return false; }

    @Override
    public UTF8String getUTF8String(int row) {
      return words[width == 2 ? indices.getShort(2L * row) & 0xFFFF : indices.getByte(row) & 0xFF];
    }

    @Override public boolean getBoolean(int row) { throw new UnsupportedOperationException(); }
    @Override public byte getByte(int row) { throw new UnsupportedOperationException(); }
    @Override public short getShort(int row) { throw new UnsupportedOperationException(); }
    @Override public int getInt(int row) { throw new UnsupportedOperationException(); }
    @Override public long getLong(int row) { throw new UnsupportedOperationException(); }
    @Override public float getFloat(int row) { throw new UnsupportedOperationException(); }
    @Override public double getDouble(int row) { throw new UnsupportedOperationException(); }
    @Override public ColumnarArray getArray(int row) { throw new UnsupportedOperationException(); }
    @Override public ColumnarMap getMap(int row) { throw new UnsupportedOperationException(); }
    @Override public byte[] getBinary(int row) { throw new UnsupportedOperationException(); }
    @Override public ColumnVector getChild(int row) { throw new UnsupportedOperationException(); }

    @Override
    public Decimal getDecimal(int row, int precision, int scale) {
      throw new UnsupportedOperationException();
    }
  }
}
